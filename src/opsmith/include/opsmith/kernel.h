// For authors of C++ and CUDA kernels: torch's stable ABI, the four steps of host code, and the line that exports it.
//
//   #include <opsmith/kernel.h>
//   using opsmith::Tensor;
//
//   Tensor square(Tensor x) {
//     opsmith::expect(x, "x").cuda().contiguous();                                 // 1. validate
//     Tensor out = opsmith::empty_like(x);
//     if (x.numel() == 0) return out;
//     const opsmith::Stream stream = opsmith::current_stream(x);                   // 2. the GPU of x, torch's stream
//     opsmith::dispatch<float, opsmith::half>(x, "x", [&](auto zero) {             // 3. from dtype to C++ type
//       using scalar = decltype(zero);
//       opsmith::launch(square_kernel<scalar>, {opsmith::blocks_for(x.numel(), 256), 256}, stream,  // 4. and launch
//                       opsmith::data<const scalar>(x), opsmith::data<scalar>(out), x.numel());
//     });
//     return out;
//   }
//   OPSMITH_EXPORT(square_forward, square)
//
// A library of such functions loads into every torch from 2.11 on, whatever torch it was compiled against. Without nvcc
// this header needs no CUDA: a .cpp file launches kernels of an opsmith.cuda_source by name (named_launch.h), a .cu
// file its own. OPSMITH_WITH_CUDA is defined, in C++ files as well, where an extension is built with its .cu files.
#pragma once

#include <torch/csrc/stable/library.h>

#include <typeinfo>

#include "decline.h"
#include "dispatch.h"
#include "errors.h"
#include "expect.h"
#include "geometry.h"
#include "named_launch.h"
#include "parallel.h"
#include "stream.h"
#include "tensors.h"

#ifdef __CUDACC__
#include "launch.h"
#endif

namespace opsmith {

template <typename Type>
const char* type_name() {
  return typeid(Type).name();
}

}  // namespace opsmith

// Exports `function` under `name` in the boxed form that opsmith registers with torch's dispatcher. torch::stable
// converts arguments and results without checking their types; the first exported function returns the types, and
// opsmith compares them with the op's schema before the kernel is called.
#define OPSMITH_EXPORT(name, function)                                                                        \
  /* Before the boxed form, which may have the function's own name. */                                        \
  static constexpr auto opsmith_function_##name = &function;                                                  \
  extern "C" {                                                                                                \
  __attribute__((visibility("default"))) const char* opsmith_export_##name() {                                \
    return opsmith::type_name<decltype(+opsmith_function_##name)>();                                          \
  }                                                                                                           \
  __attribute__((visibility("default"))) void name(StableIValue* stack, uint64_t inputs, uint64_t outputs) {  \
    opsmith::detail::exported(#name, opsmith::detail::host(), [&] {                                           \
      [[maybe_unused]] const opsmith::detail::HostCall call{};                                                \
      TORCH_BOX(+opsmith_function_##name)(stack, inputs, outputs);                                            \
    });                                                                                                       \
  }                                                                                                           \
  }
