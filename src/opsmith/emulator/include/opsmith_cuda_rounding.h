// Rounding to a 16-bit floating-point format, once, and sums and products prepared for it.
#pragma once

#include <float.h>
#include <stdint.h>

#include "opsmith_cuda_conversions.h"

namespace opsmith::emulator {

// IEEE binary16: CUDA's __half.
struct Binary16 {
  static constexpr int fraction_bits = 10, exponent_bits = 5;
};

// The upper half of a float: CUDA's __nv_bfloat16.
struct Brain16 {
  static constexpr int fraction_bits = 7, exponent_bits = 8;
};

template <typename Float>
struct Layout;
template <>
struct Layout<float> {
  using Bits = uint32_t;
  static constexpr int fraction_bits = 23, exponent_bits = 8;
};
template <>
struct Layout<double> {
  using Bits = uint64_t;
  static constexpr int fraction_bits = 52, exponent_bits = 11;
};

// The only NaN that a GPU's arithmetic gives, in either format.
constexpr uint16_t kNaN16 = 0x7fff;

template <typename Format, Rounding rounding = Rounding::rn, typename Float>
constexpr uint16_t rounded(Float value) {
  using Wide = Layout<Float>;
  using Bits = typename Wide::Bits;
  constexpr int kBias = (1 << (Wide::exponent_bits - 1)) - (1 << (Format::exponent_bits - 1));
  constexpr int kTopExponent = (1 << Format::exponent_bits) - 1;
  constexpr uint16_t kInfinity = kTopExponent << Format::fraction_bits;
  constexpr Bits kHidden = Bits{1} << Wide::fraction_bits;
  constexpr Bits kWideInfinity = ((Bits{1} << Wide::exponent_bits) - 1) << Wide::fraction_bits;

  const Bits bits = __builtin_bit_cast(Bits, value);
  const auto sign = static_cast<uint16_t>(bits >> (sizeof(Bits) * 8 - 16) & 0x8000);
  const Bits magnitude = bits & (~Bits{0} >> 1);
  if (magnitude > kWideInfinity) return kNaN16;
  if (magnitude == kWideInfinity) return sign | kInfinity;

  const int field = static_cast<int>(magnitude >> Wide::fraction_bits);
  const Bits significand = (magnitude & (kHidden - 1)) | (field == 0 ? 0 : kHidden);
  int exponent = (field == 0 ? 1 : field) - kBias;
  int dropped = Wide::fraction_bits - Format::fraction_bits;
  if (exponent < 1) {
    // A subnormal number has fewer bits. Dropping two more than there are leaves less than a half of the last one.
    dropped = dropped + 1 - exponent < Wide::fraction_bits + 2 ? dropped + 1 - exponent : Wide::fraction_bits + 2;
    exponent = 1;
  }
  if (exponent > kTopExponent) exponent = kTopExponent;

  // The hidden bit, added to the exponent's field, makes it the exponent; so does a carry out of the fraction.
  uint32_t result = (static_cast<uint32_t>(exponent - 1) << Format::fraction_bits) +
                    static_cast<uint32_t>(significand >> dropped);
  const Bits rest = significand & ((Bits{1} << dropped) - 1), half = Bits{1} << (dropped - 1);
  if constexpr (rounding == Rounding::rn) result += rest > half || (rest == half && (result & 1));
  if constexpr (rounding == Rounding::rd) result += rest != 0 && sign != 0;
  if constexpr (rounding == Rounding::ru) result += rest != 0 && sign == 0;

  if (result >= kInfinity) {
    const bool to_infinity = rounding == Rounding::rn || (rounding == Rounding::rd && sign != 0) ||
                             (rounding == Rounding::ru && sign == 0);
    result = to_infinity ? kInfinity : kInfinity - 1;
  }
  return static_cast<uint16_t>(sign | result);
}

// As a float, which every number of both formats is exactly.
template <typename Format>
constexpr float widened(uint16_t bits) {
  if constexpr (Format::exponent_bits == Layout<float>::exponent_bits) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  } else {
    constexpr int kShift = Layout<float>::fraction_bits - Format::fraction_bits;
    constexpr uint32_t kInfinity = ((1u << Format::exponent_bits) - 1) << Format::fraction_bits;
    constexpr uint32_t kBias = (1u << 7) - (1u << (Format::exponent_bits - 1));
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    if (magnitude > kInfinity) return __builtin_bit_cast(float, 0x7fffffffu);
    if (magnitude == kInfinity) return __builtin_bit_cast(float, sign | 0x7f800000u);
    if (magnitude >> Format::fraction_bits != 0) {
      return __builtin_bit_cast(float, sign | ((magnitude << kShift) + (kBias << Layout<float>::fraction_bits)));
    }
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
    return sign == 0 ? subnormal : -subnormal;
  }
}

// a + b, and where that is not a double, its neighbour whose last bit is one ("rounding to odd"). To round this to
// a format of at least two bits less is to round the exact sum (Boldo and Melquiond, 2008).
constexpr double odd_sum(double a, double b) {
  const double sum = a + b;
  const double of_b = sum - a;
  const double error = (a - (sum - of_b)) + (b - of_b);
  if (!(error < 0 || error > 0)) return sum;  // exact, infinite or NaN
  const uint64_t bits = __builtin_bit_cast(uint64_t, sum);
  if (bits & 1) return sum;
  return __builtin_bit_cast(double, (error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// a * b + c, rounded once: the product of two floats is a double.
template <typename Format>
constexpr uint16_t fused(float a, float b, float c) {
  return rounded<Format>(odd_sum(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
}

template <typename Format, Rounding rounding, typename Integer>
constexpr uint16_t rounded_integer(Integer value) {
  const double high = static_cast<double>(static_cast<int64_t>(value >> (sizeof(Integer) * 4)));
  const double low = static_cast<double>(static_cast<uint64_t>(value) & (~uint64_t{0} >> (64 - sizeof(Integer) * 4)));
  return rounded<Format, rounding>(odd_sum(high * static_cast<double>(uint64_t{1} << (sizeof(Integer) * 4)), low));
}

// A whole number as an integer: out of range the nearest; NaN is 0, or in 64 bits the upper bit alone.
template <typename Integer>
inline Integer integer(float whole) {
  if (whole != whole && sizeof(Integer) == 8) return static_cast<Integer>(uint64_t{1} << 63);
  return saturated<Integer>(whole);
}

}  // namespace opsmith::emulator
