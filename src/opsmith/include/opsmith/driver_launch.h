// A launch by name through the CUDA driver.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "arguments.h"
#include "decline.h"
#include "driver.h"
#include "geometry.h"
#include "stream.h"
#include "table.h"

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

constexpr int64_t kSharedOfAnyBlock = 48 * 1024;

// A kernel on a GPU. `allowed`: the shared memory, static and dynamic, that a block may have.
struct NamedKernel {
  const KernelInfo* info;
  std::atomic<int64_t> allowed{kSharedOfAnyBlock};
};

// What has loaded the library, and the kernels that it has found.
class Kernels {
 public:
  explicit Kernels(const Host& host) : host_(host) {}

  const Host& host() const { return host_; }

  // Throws Declined if the kernel is not available. Null: there is nothing to launch.
  NamedKernel* find(std::string_view name, int32_t device) {
    std::string key(name);
    key.push_back(static_cast<char>(device));
    const auto* bytes = reinterpret_cast<const uint8_t*>(key.data());
    if (NamedKernel* const* known = table_.find(bytes, key.size())) return *known;
    key.pop_back();
    const KernelInfo* info = nullptr;
    if (!ask([&](auto... message) { return host_.find(host_.context, key.c_str(), device, &info, message...); })) {
      return nullptr;
    }
    key.push_back(static_cast<char>(device));
    // The question is asked without the lock: Python may be asked by a thread that another waits for.
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes = reinterpret_cast<const uint8_t*>(key.data());
    if (table_.find(bytes, key.size()) == nullptr) table_.add(bytes, key.size(), new NamedKernel{info});
    return *table_.find(bytes, key.size());
  }

  void allow(NamedKernel& kernel, std::string_view name, const Geometry& geometry, int32_t device) {
    const int64_t threads = int64_t{geometry.block.x} * geometry.block.y * geometry.block.z;
    const int64_t total = geometry.shared_bytes + kernel.info->static_shared;
    if (threads <= kernel.info->max_threads && total <= kernel.allowed.load(std::memory_order_relaxed)) return;
    const std::string text(name);
    ask([&](auto... message) {
      return host_.allow(host_.context, text.c_str(), device, threads, geometry.shared_bytes, message...);
    });
    int64_t before = kernel.allowed.load();
    while (before < total && !kernel.allowed.compare_exchange_weak(before, total)) {
    }
  }

 private:
  template <typename Question>
  static bool ask(Question&& question) {
    constexpr uint64_t capacity = 8192;
    const auto message = std::make_unique<char[]>(capacity);
    message[0] = '\0';
    switch (question(message.get(), capacity)) {
      case Found::found: return true;
      case Found::nothing: return false;
      case Found::declined:
        // What this call has launched may have changed its tensors: the reference would start from those.
        if (!HostCall::has_launched()) decline();
        break;
      case Found::failed: break;
    }
    fail(message.get());
  }

  const Host host_;
  Table<NamedKernel*> table_;
  std::mutex mutex_;
};

inline std::atomic<Kernels*> kernels{nullptr};

inline void set_host(const Host* host) {
  kernels.store(new Kernels(*host), std::memory_order_release);  // the previous one stays: a thread may be using it
}

inline const Host* host() {
  const Kernels* current = kernels.load(std::memory_order_acquire);
  return current == nullptr ? nullptr : &current->host();
}

inline void launch_named(
    std::string_view name, const Geometry& geometry, const Stream& stream, const Argument* given, size_t count,
    uint64_t* slots, void** pointers) {
  Kernels* const all = kernels.load(std::memory_order_acquire);
  if (all == nullptr || all->host().find == nullptr) {
    fail(name, " is launched by its name, and the extension has no kernels: opsmith.extension(..., kernels=cu)");
  }
  NamedKernel* const kernel = all->find(name, stream.device);
  if (kernel == nullptr) return;
  Conversion(name, *kernel->info).convert(given, count, slots, pointers);
  all->allow(*kernel, name, geometry, stream.device);
  const Driver& driver = Driver::get();
  const CurrentContext on_its_device(stream.device);
  const Driver::Configuration configuration{{geometry.grid.x, geometry.grid.y, geometry.grid.z},
                                            {geometry.block.x, geometry.block.y, geometry.block.z},
                                            static_cast<unsigned>(geometry.shared_bytes),
                                            stream.handle,
                                            nullptr,
                                            0};
  const int code = driver.launch(configuration, kernel->info->function, pointers);
  HostCall::launched();
  if (code == 0) return;
  fail(name, " was not launched with grid ", geometry.grid.text(), ", block ", geometry.block.text(), " and ",
       geometry.shared_bytes, " bytes of dynamic shared memory on cuda:", stream.device, ": ", driver.error_text(code),
       " (CUDA error ", code, "). It takes at most ", kernel->info->max_threads,
       " threads per block, and a grid (2147483647, 65535, 65535) of blocks (1024, 1024, 64).\n  ",
       kernel->info->declared);
}

inline GpuInfo gpu_of(const Tensor& tensor) {
  static std::array<std::atomic<const GpuInfo*>, Driver::kMostDevices> known{};
  const int32_t index = tensor.get_device_index();
  std::atomic<const GpuInfo*>& place = known.at(static_cast<size_t>(index));
  if (const GpuInfo* found = place.load(std::memory_order_acquire)) return *found;
  const Driver& driver = Driver::get();
  const int architecture = 10 * driver.attribute(Driver::kMajor, index) + driver.attribute(Driver::kMinor, index);
  const auto* made = new GpuInfo{
      driver.attribute(Driver::kMultiprocessors, index), driver.attribute(Driver::kSharedBytes, index), architecture};
  place.store(made, std::memory_order_release);
  return *made;
}

inline bool is_capturing(const Stream& stream) {
  const CurrentContext on_its_device(stream.device);
  return Driver::get().is_capturing(stream.handle);
}

}  // namespace detail

}  // namespace opsmith
