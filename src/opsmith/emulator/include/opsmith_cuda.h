// CUDA C++ for a C++ compiler: the words, types and functions that a kernel finds without including anything.
//
// Included before the author's first line (-include). What a function does to memory or to other threads goes to the
// emulator's runtime (../native/interface.h); what it computes is computed here.
#pragma once

#include "../native/interface.h"

// The words of the language.
#define OPSMITH_EMULATOR 1
#define __global__
#define __device__
#define __host__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__  // nothing: libstdc++ itself writes __attribute__((__noinline__))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __cluster_dims__(...)
#define __inline_hint__
#define __constant__ __attribute__((section("opsmith_constant"), used))
#define OPSMITH_CONST_CONSTANT __attribute__((section("opsmith_constant_of_const"), used))
// A block runs on one thread of the machine, so what is the thread's own is the block's own. `extern __shared__` is
// rewritten before the compiler sees it.
// constinit: GCC would guard an array of a class with constructors (__half), and the guard is not shared memory.
// used: the compiler would not read a variable that nothing writes, and a mistake would go unnoticed.
#define __shared__ __attribute__((used)) static thread_local constinit

#include "opsmith_cuda_types.h"

#define threadIdx (opsmith::emulator::as_uint3(opsmith::emulator::opsmith_thread_index()))
#define blockIdx (opsmith::emulator::as_uint3(opsmith::emulator::opsmith_block_index()))
#define blockDim (opsmith::emulator::as_dim3(opsmith::emulator::opsmith_block_size()))
#define gridDim (opsmith::emulator::as_dim3(opsmith::emulator::opsmith_grid_size()))
constexpr int warpSize = 32;

#include "opsmith_cuda_math.h"
#include "opsmith_cuda_directed.h"
#include "opsmith_cuda_conversions.h"
#include "opsmith_cuda_integers.h"
#include "opsmith_cuda_video.h"
#include "opsmith_cuda_dpx.h"
#include "opsmith_cuda_threads.h"
#include "opsmith_cuda_clusters.h"
#include "opsmith_cuda_legacy.h"
#include "opsmith_cuda_atomics.h"
#include "opsmith_cuda_memory.h"

#include <assert.h>
#include <stdio.h>
// What a kernel prints goes to the thread that launched it, and from there to Python's sys.stdout.
extern "C" int printf(const char* format, ...) __asm__("opsmith_printf");
extern "C" int vprintf(const char* format, va_list values) __asm__("opsmith_print_values");

// What a GPU's compiler would take for granted, and rely on.
#define __builtin_assume(condition)                                                    \
  ((condition) ? static_cast<void>(0)                                                  \
               : opsmith::emulator::opsmith_assertion_failed("__builtin_assume(" #condition ")", __FILE__, __LINE__))
__forceinline__ void __assert_fail(const char* condition, const char* file, unsigned line, const char*) {
  opsmith::emulator::opsmith_assertion_failed(condition, file, static_cast<int>(line));
}
