// thrust::complex, which torch's own headers name: its numbers are those of std::complex.
#pragma once

#include <complex>

namespace thrust {

template <typename Number>
struct complex : std::complex<Number> {
  using std::complex<Number>::complex;
  constexpr complex(const std::complex<Number>& from) : std::complex<Number>(from) {}
};

template <typename Number>
complex<Number> polar(const Number& length, const Number& angle = Number()) {
  return std::polar(length, angle);
}

}  // namespace thrust
