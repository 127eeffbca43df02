// The CUDA kernels in a shipped library, loaded on each GPU when a program first runs there.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "../../../runtime/native/kernels.h"
#include "data.h"

namespace opsmith::shipped {

class Gpus {
 public:
  static Gpus& get() {
    static Gpus& gpus = *new Gpus;
    return gpus;
  }

  // What the planner needs to know of a GPU.
  void meet(int index) {
    Devices& devices = Devices::get();
    if (devices.multiprocessors.at(index).load() != 0) return;
    const int major = driver_.attribute(Driver::kMajor, index), minor = driver_.attribute(Driver::kMinor, index);
    int version = 0;
    driver_.require(version_(&version), "cuDriverGetVersion");
    const char* overlap = std::getenv("OPSMITH_OVERLAP");
    const bool wanted = overlap == nullptr || std::strcmp(overlap, "0") != 0;
    devices.overlaps.at(index) = wanted && major >= 9 && version >= kOverlappedInGraphs;
    architectures_.at(index) = 10 * major + minor;
    devices.clusters.at(index) = major < 9 ? 1 : major <= 10 ? kLargeCluster : kCluster;
    devices.multiprocessors.at(index) = driver_.attribute(Driver::kMultiprocessors, index);
  }

  // The handle of a kernel on a GPU; null if none of the images runs there. Kernels of one image share its variables.
  void* load(const Span<Image>& images, const char* entry, int index) {
    meet(index);
    const int architecture = architectures_.at(index);
    const Image* best = nullptr;
    for (const Image& image : images) {
      const bool later = image.architecture <= architecture &&
                         (image.is_ptx || image.architecture / 10 == architecture / 10);
      const bool runs = image.is_exact ? image.architecture == architecture : later;
      if (runs && (best == nullptr || (best->is_ptx && !image.is_ptx) ||
                   (best->is_ptx == image.is_ptx && best->architecture < image.architecture))) {
        best = &image;
      }
    }
    if (best == nullptr) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    void *handle = nullptr, *resident = nullptr;
    const CurrentContext on_its_device(index);
    const Relaxed capture(*this);
    void*& library = libraries_[best->begin];
    if (library == nullptr) {
      driver_.require(load_(&library, best->begin, nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData");
    }
    driver_.require(kernel_(&handle, library, entry), "cuLibraryGetKernel");
    set_attribute_(kLargeClusterAllowed, 1, handle, driver_.device(index));  // unknown before clusters
    function_(&resident, handle);  // now, not during a capture; its errors are left to the launch
    return handle;
  }

  int kernel_attribute(int attribute, void* kernel, int index) const {
    int value = 0;
    driver_.require(get_attribute_(&value, attribute, kernel, driver_.device(index)), "cuKernelGetAttribute");
    return value;
  }
  // The code of the error.
  int allow_shared(int64_t bytes, void* kernel, int index) const {
    return set_attribute_(kDynamicShared, static_cast<int>(bytes), kernel, driver_.device(index));
  }

  static constexpr int kMostThreads = 0, kStaticShared = 1;  // CUfunction_attribute

 private:
  static constexpr int kDynamicShared = 8, kLargeClusterAllowed = 14;  // CUfunction_attribute
  static constexpr int64_t kCluster = 8, kLargeCluster = 16;            // driver.py's largest_cluster
  static constexpr int kOverlappedInGraphs = 12030;

  // Code can be loaded while a graph is captured.
  struct Relaxed {
    explicit Relaxed(const Gpus& gpus) : gpus(gpus) { gpus.exchange_(&mode); }
    ~Relaxed() { gpus.exchange_(&mode); }
    const Gpus& gpus;
    int mode = 2;
  };

  Gpus() : driver_(Driver::get()) {
    driver_.find("cuDriverGetVersion", version_);
    driver_.find("cuThreadExchangeStreamCaptureMode", exchange_);
    driver_.find("cuLibraryLoadData", load_);
    driver_.find("cuLibraryGetKernel", kernel_);
    driver_.find("cuKernelGetFunction", function_);
    driver_.find("cuKernelGetAttribute", get_attribute_);
    driver_.find("cuKernelSetAttribute", set_attribute_);
  }

  const Driver& driver_;
  std::array<std::atomic<int>, Devices::kMaxGpus> architectures_{};
  std::map<const char*, void*> libraries_;  // by the image that each is loaded from
  std::mutex mutex_;
  int (*version_)(int*);
  int (*exchange_)(int*);
  int (*load_)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned);
  int (*kernel_)(void**, void*, const char*);
  int (*function_)(void**, void*);
  int (*get_attribute_)(int*, int, void*, int);
  int (*set_attribute_)(int, int, void*, int);
};

}  // namespace opsmith::shipped
