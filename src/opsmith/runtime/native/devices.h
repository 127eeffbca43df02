// How a compiled kernel is launched: on torch's thread pool, or by the CUDA driver on torch's current stream. The
// Python fallback does this in generate/devices.py. It uses no more of torch than its C shim: shipped libraries
// (shipping/library) launch by it too.
#pragma once

#include <dlfcn.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstdint>

#include "../../include/opsmith/errors.h"
#include "../../launch/planner/tuning.h"

namespace opsmith {

// A compiled kernel: on the CPU a function, on a GPU the driver's handle.
struct Loaded {
  void* function = nullptr;
  Tiles tiles;  // of a CUDA kernel without reduction
};

// Calls a kernel on [0, tasks), in pieces of at least `grain`; few tasks never see the thread pool.
inline void launch_on_cpu(void* function, int64_t tasks, int64_t grain, int64_t* parameters) {
  using Entry = void (*)(int64_t begin, int64_t end, void* parameters);
  const auto entry = reinterpret_cast<Entry>(function);
  if (tasks <= grain) {
    entry(0, tasks, parameters);
    return;
  }
  check(torch_parallel_for(0, tasks, grain, entry, parameters), "torch_parallel_for");
}

// Blocks along x and y, and the threads of each.
struct Grid {
  int64_t blocks;
  int64_t rows;
  int64_t threads;
};

// libcuda and torch's function for the current stream, found when the first kernel is launched: this library is built
// without CUDA's headers and works without a GPU.
class CudaLauncher {
 public:
  static const CudaLauncher& get() {
    static const CudaLauncher launcher;
    return launcher;
  }

  // `overlapped`: it may begin while what precedes it ends; its kernel waits.
  void launch(void* kernel, const Grid& grid, int64_t* its_parameters, int index, bool overlapped) const {
    void* stream = nullptr;
    if (current_stream_(index, &stream) != 0) fail("torch did not give its current stream of cuda:", index);
    if (grid.blocks > INT32_MAX) fail("a launch of ", grid.blocks, " blocks is more than a GPU takes");
    void* parameters[] = {its_parameters};
    Attribute attribute{kProgrammaticStreamSerialization, 0, {1}};
    const Configuration configuration{{static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.rows), 1},
                                      {static_cast<unsigned>(grid.threads), 1, 1},
                                      0,
                                      stream,
                                      &attribute,
                                      overlapped ? 1u : 0u};
    int code = launch_kernel_(&configuration, kernel, parameters, nullptr);
    if (code == kInvalidContext) {  // A thread that has not used CUDA yet.
      enter_context(index);
      code = launch_kernel_(&configuration, kernel, parameters, nullptr);
    }
    require(code, "cuLaunchKernelEx");
  }

 private:
  static constexpr int kInvalidContext = 201;
  static constexpr int kProgrammaticStreamSerialization = 6;

  // CUlaunchAttribute and CUlaunchConfig.
  struct alignas(8) Attribute {
    int id;
    int padding;
    int value[16];
  };
  struct Configuration {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared;
    void* stream;
    Attribute* attributes;
    unsigned attribute_count;
  };
  static_assert(sizeof(Attribute) == 72 && sizeof(Configuration) == 56, "as in cuda.h");

  CudaLauncher() {
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver == nullptr) fail("the CUDA driver cannot be loaded: ", dlerror());
    find(driver, "cuLaunchKernelEx", launch_kernel_);
    find(driver, "cuGetErrorString", error_string_);
    find(driver, "cuDeviceGet", device_get_);
    find(driver, "cuDevicePrimaryCtxRetain", retain_context_);
    find(driver, "cuCtxSetCurrent", set_context_);
    void* torch_cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (torch_cuda == nullptr) fail("torch's CUDA library is not loaded: ", dlerror());
    find(torch_cuda, "aoti_torch_get_current_cuda_stream", current_stream_);
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

  void enter_context(int index) const {
    int device = 0;
    void* context = nullptr;
    require(device_get_(&device, index), "cuDeviceGet");
    require(retain_context_(&context, device), "cuDevicePrimaryCtxRetain");
    require(set_context_(context), "cuCtxSetCurrent");
  }

  int (*launch_kernel_)(const Configuration*, void*, void**, void**);
  int (*error_string_)(int, const char**);
  int (*device_get_)(int*, int);
  int (*retain_context_)(void**, int);
  int (*set_context_)(void*);
  int (*current_stream_)(int32_t, void**);
};

}  // namespace opsmith
