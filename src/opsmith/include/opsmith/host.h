// The interface between host code and what has loaded its library: opsmith in Python (kernels/host.py has the same
// structures), or a shipped library (shipping/library). Plain C structures, without torch and CUDA.
#pragma once

#include <cstdint>

namespace opsmith __attribute__((visibility("hidden"))) {

// Of a parameter, an argument, or the elements that a pointer leads to. `other`: a struct; as an element, anything.
enum class ValueKind : int32_t { integer = 0, natural, boolean, floating, half, bfloat16, pointer, other };

struct ParameterInfo {
  const char* name;  // "x"; empty where the author gives none
  const char* type;  // "const float*"
  uint64_t size;
  ValueKind kind;
  ValueKind element;           // of a pointer
  uint64_t element_size;  // 0: any
  uint64_t alignment;     // that a pointer must have
  int32_t is_read_only;   // a pointer to const
};

// A kernel of an opsmith.cuda_source on one GPU.
struct KernelInfo {
  const char* declared;  // "scale.cu:3: __global__ void scale(float* x)", for messages
  void* function;        // the driver's handle, a CUkernel
  const ParameterInfo* parameters;
  uint64_t count;
  int64_t max_threads;
  int64_t static_shared;  // bytes
};

struct GpuInfo {
  int64_t multiprocessors;
  int64_t shared_bytes;  // the most of a block
  int64_t architecture;  // 90 for sm_90
};

// `failed`: with a message. `declined`: the kernel is not available, and the reference serves the call. `nothing`:
// there is nothing to launch, because the call is recorded.
enum class Found : int32_t { found = 0, failed, declined, nothing };

struct Host {
  void* context;
  Found (*find)(void* context, const char* name, int32_t device, const KernelInfo** kernel, char* message,
                uint64_t capacity);
  // Whether the kernel can have this block; it then may have so much dynamic shared memory.
  Found (*allow)(void* context, const char* name, int32_t device, int64_t threads, int64_t shared_bytes, char* message,
                 uint64_t capacity);
  // The GPU that calls are emulated or recorded for; null where they run on a real one.
  void (*gpu)(void* context, GpuInfo* gpu);
  // Called in place of an exception where host code declines a call; null: the exception is wanted.
  void (*declined)();
};

}  // namespace opsmith
