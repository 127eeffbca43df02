// The fourth step of host code: a checked launch.
//
//   opsmith::launch(square_kernel<scalar>, {blocks, threads, shared_bytes}, x,
//                   opsmith::data<const scalar>(x), opsmith::data<scalar>(out), x.numel());
//
// On torch's current stream of the GPU that `x` is on; a Stream in its place says another one. Arguments are converted
// to what the kernel declares, and a number that does not fit is refused.
#pragma once

#include <array>
#include <tuple>
#include <utility>

#include "geometry.h"
#include "stream.h"

#ifdef OPSMITH_EMULATOR
#include <opsmith_host_launch.h>
#else
#include "cuda_launch.h"
#endif

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

// An argument as the kernel declares it. A count of 2^31 must not become a negative int on the way.
template <typename Parameter, typename Argument>
Parameter converted(const Argument& argument, int position) {
  static_assert(!(std::is_integral_v<Parameter> && std::is_floating_point_v<Argument>),
                "the kernel takes an integer here, and was given a floating-point number: convert it");
  if constexpr (std::is_integral_v<Parameter> && std::is_integral_v<Argument>) {
    using Wide = std::conditional_t<std::is_signed_v<Argument>, int64_t, uint64_t>;
    const auto wide = static_cast<Wide>(argument);
    const auto least = static_cast<int64_t>(std::numeric_limits<Parameter>::min());
    const auto most = static_cast<uint64_t>(std::numeric_limits<Parameter>::max());
    if (std::cmp_less(wide, least) || std::cmp_greater(wide, most)) {
      fail("argument ", position, " of the kernel is ", wide, ", and its parameter takes ", least, " to ", most);
    }
    return static_cast<Parameter>(argument);
  } else {
    return argument;
  }
}

template <typename... Parameters, typename... Arguments, size_t... Positions>
void launch(
    void (*kernel)(Parameters...), const Geometry& geometry, const Stream& stream, std::index_sequence<Positions...>,
    const Arguments&... arguments) {
  std::tuple<std::remove_cv_t<Parameters>...> values{
      converted<std::remove_cv_t<Parameters>>(arguments, static_cast<int>(Positions))...};
  std::array<void*, sizeof...(Parameters) + 1> pointers{&std::get<Positions>(values)..., nullptr};
  start(kernel, geometry, stream, values, pointers.data());
}

}  // namespace detail

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), Geometry geometry, const Stream& stream, const Arguments&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "a kernel is launched with one argument a parameter");
  detail::launch(kernel, geometry, stream, std::index_sequence_for<Parameters...>(), arguments...);
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), Geometry geometry, const Tensor& tensor, const Arguments&... arguments) {
  launch(kernel, geometry, current_stream(tensor), arguments...);
}

}  // namespace opsmith
