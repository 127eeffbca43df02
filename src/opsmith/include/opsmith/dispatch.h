// The third step of host code: from a tensor's dtype, known when it runs, to a C++ type, known when it is compiled.
//
//   opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16>(x, "x", [&](auto zero) {
//     using scalar = decltype(zero);
//     ...
//   });
#pragma once

#include "tensors.h"

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

template <typename Function, typename... All>
struct Dispatch {
  const Tensor& tensor;
  const int32_t given;
  const char* name;
  Function& function;

  template <typename Scalar, typename... Rest>
  auto among() const {
    if (given == dtype_number<Scalar>()) return function(Scalar{});
    if constexpr (sizeof...(Rest) > 0) {
      return among<Rest...>();
    } else {
      fail(name, " is of ", dtype_name(tensor.scalar_type()), "; this kernel takes ", dtype_names<All...>());
    }
  }
};

}  // namespace detail

// Calls `function` with a zero of the type of the tensor's elements, and returns what it returns.
template <typename... Scalars, typename Function>
auto dispatch(const Tensor& tensor, const char* name, Function&& function) {
  using Search = detail::Dispatch<std::remove_reference_t<Function>, Scalars...>;
  return Search{tensor, dtype_number(tensor), name, function}.template among<Scalars...>();
}

}  // namespace opsmith
