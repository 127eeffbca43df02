// How a compiled kernel is launched: on torch's thread pool, or by the CUDA driver on torch's current stream. The
// Python fallback does this in generate/devices.py. It uses no more of torch than its C shim: shipped libraries
// (shipping/library) launch by it too.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <cstdint>

#include "../../include/opsmith/driver.h"
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

// Launches on torch's current stream, whose function is found when the first kernel is launched: this library is built
// without CUDA and works without a GPU.
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
    Driver::Attribute attribute{kProgrammaticStreamSerialization, 0, {1}};
    const Driver::Configuration configuration{{static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.rows), 1},
                                              {static_cast<unsigned>(grid.threads), 1, 1},
                                              0,
                                              stream,
                                              &attribute,
                                              overlapped ? 1u : 0u};
    int code = driver_.launch(configuration, kernel, parameters);
    if (code == Driver::kInvalidContext) {  // A thread that has not used CUDA yet.
      driver_.enter(index);
      code = driver_.launch(configuration, kernel, parameters);
    }
    driver_.require(code, "cuLaunchKernelEx");
  }

 private:
  static constexpr int kProgrammaticStreamSerialization = 6;

  CudaLauncher() : driver_(Driver::get()) {
    void* torch_cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (torch_cuda == nullptr) fail("torch's CUDA library is not loaded: ", dlerror());
    constexpr const char* name = "aoti_torch_get_current_cuda_stream";
    current_stream_ = reinterpret_cast<decltype(current_stream_)>(dlsym(torch_cuda, name));
    if (current_stream_ == nullptr) fail(name, " is missing: ", dlerror());
  }

  const Driver& driver_;
  int (*current_stream_)(int32_t, void**);
};

}  // namespace opsmith
