// The CUDA kernels that a shipped library carries, loaded on each GPU when a program first runs there.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
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
    int device = 0, count = 0, major = 0, minor = 0, version = 0;
    require(device_get_(&device, index), "cuDeviceGet");
    require(attribute_(&major, kMajor, device), "cuDeviceGetAttribute");
    require(attribute_(&minor, kMinor, device), "cuDeviceGetAttribute");
    require(attribute_(&count, kMultiprocessors, device), "cuDeviceGetAttribute");
    require(version_(&version), "cuDriverGetVersion");
    const char* overlap = std::getenv("OPSMITH_OVERLAP");
    const bool wanted = overlap == nullptr || std::strcmp(overlap, "0") != 0;
    devices.overlaps.at(index) = wanted && major >= 9 && version >= kOverlappedInGraphs;
    architectures_.at(index) = 10 * major + minor;
    devices.multiprocessors.at(index) = count;
  }

  // The handle of a kernel on a GPU; null if nothing in the library runs there.
  void* load(const GpuKernelData& kernel, int index) {
    const int architecture = architectures_.at(index);
    const Image* best = nullptr;
    for (const Image& image : kernel.images) {
      const bool runs = image.architecture <= architecture &&
                        (image.is_ptx || image.architecture / 10 == architecture / 10);
      if (runs && (best == nullptr || (best->is_ptx && !image.is_ptx) ||
                   (best->is_ptx == image.is_ptx && best->architecture < image.architecture))) {
        best = &image;
      }
    }
    if (best == nullptr) return nullptr;
    void *library = nullptr, *handle = nullptr, *resident = nullptr;
    const Relaxed capture(*this);
    require(load_(&library, best->begin, nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData");
    require(kernel_(&handle, library, kernel.entry), "cuLibraryGetKernel");
    function_(&resident, handle);  // now, not during a capture; its errors are left to the launch
    return handle;
  }

 private:
  static constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;  // CUdevice_attribute
  static constexpr int kOverlappedInGraphs = 12030;

  // Code can be loaded while a graph is captured.
  struct Relaxed {
    explicit Relaxed(const Gpus& gpus) : gpus(gpus) { gpus.exchange_(&mode); }
    ~Relaxed() { gpus.exchange_(&mode); }
    const Gpus& gpus;
    int mode = 2;
  };

  Gpus() {
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver == nullptr) fail("the CUDA driver cannot be loaded: ", dlerror());
    find(driver, "cuDeviceGet", device_get_);
    find(driver, "cuDeviceGetAttribute", attribute_);
    find(driver, "cuDriverGetVersion", version_);
    find(driver, "cuGetErrorString", error_string_);
    find(driver, "cuThreadExchangeStreamCaptureMode", exchange_);
    find(driver, "cuLibraryLoadData", load_);
    find(driver, "cuLibraryGetKernel", kernel_);
    find(driver, "cuKernelGetFunction", function_);
  }

  template <typename Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) fail(name, " is missing: ", dlerror());
  }

  void require(int code, const char* what) const {
    if (code == 0) return;
    const char* message = nullptr;
    error_string_(code, &message);
    fail(what, " failed: ", message == nullptr ? "unknown error" : message);
  }

  std::array<std::atomic<int>, Devices::kMaxGpus> architectures_{};
  int (*device_get_)(int*, int);
  int (*attribute_)(int*, int, int);
  int (*version_)(int*);
  int (*error_string_)(int, const char**);
  int (*exchange_)(int*);
  int (*load_)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned);
  int (*kernel_)(void**, void*, const char*);
  int (*function_)(void**, void*);
};

}  // namespace opsmith::shipped
