// The types of elements: integers by their size, the half types as stored in memory, and casts as in torch.
//
// No header of CUDA's or the standard's is included: parsing them would take NVRTC longer than the kernel. Outside of a
// GPU compilation (an emulator, a test) every conversion has a form in plain integers.
#pragma once

#define OPSMITH_DEVICE __device__ __forceinline__

namespace opsmith {

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;

struct float16 {
  uint16_t bits;
};

struct bfloat16 {
  uint16_t bits;
};

template <class A, class B>
constexpr bool same_type = false;
template <class A>
constexpr bool same_type<A, A> = true;

template <class T>
constexpr bool is_float = same_type<T, float> || same_type<T, double>;

// What an element is held in while it is computed with.
template <class T>
struct ComputedIn {
  using type = T;
};
template <>
struct ComputedIn<float16> {
  using type = float;
};
template <>
struct ComputedIn<bfloat16> {
  using type = float;
};
template <class T>
using Value = typename ComputedIn<T>::type;

template <class To, class From>
OPSMITH_DEVICE To bits_as(From from) {
  return __builtin_bit_cast(To, from);
}

// --- bfloat16: the upper half of a float ------------------------------------------------------------------------

OPSMITH_DEVICE float widen(bfloat16 value) { return bits_as<float>(uint32_t(value.bits) << 16); }

OPSMITH_DEVICE uint16_t bfloat16_bits(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const uint32_t whole = bits_as<uint32_t>(value);
  // Half of the last place that stays, less one where that place is even: ties go to even.
  const uint32_t rounded = (whole + 0x7fffu + ((whole >> 16) & 1u)) >> 16;
  return uint16_t(value != value ? 0x7fffu : rounded);
#endif
}

// Two elements as stored in memory, the first in the lower half.
OPSMITH_DEVICE uint32_t bfloat16_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return uint32_t(bfloat16_bits(first)) | uint32_t(bfloat16_bits(second)) << 16;
#endif
}

// --- float16 ----------------------------------------------------------------------------------------------------

OPSMITH_DEVICE float widen(float16 value) {
#if defined(__CUDA_ARCH__)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  const uint32_t sign = uint32_t(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    return bits_as<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  }
  // The exponent is off by 127 - 15; a multiplication sets it right and makes denormal numbers normal.
  return bits_as<float>(sign | magnitude << 13) * bits_as<float>(uint32_t(127 + 112) << 23);
#endif
}

OPSMITH_DEVICE uint16_t float16_bits(float value) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const uint32_t whole = bits_as<uint32_t>(value);
  const uint32_t sign = whole >> 16 & 0x8000u;
  uint32_t magnitude = whole & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fffu;
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // rounds to 65536 or more
  if (magnitude < 0x38800000u) {
    // Below 2^-14: added to 0.5, the last place of the sum is worth 2^-24, that of a denormal float16.
    const float sum = bits_as<float>(magnitude) + 0.5f;
    return uint16_t(sign | (bits_as<uint32_t>(sum) - 0x3f000000u));
  }
  magnitude += 0xfffu + (magnitude >> 13 & 1u);
  return uint16_t(sign | ((magnitude - 0x38000000u) >> 13));
#endif
}

OPSMITH_DEVICE uint32_t float16_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return uint32_t(float16_bits(first)) | uint32_t(float16_bits(second)) << 16;
#endif
}

template <class T>
OPSMITH_DEVICE T widen(T value) {
  return value;
}

OPSMITH_DEVICE float round_to_bfloat16(float value) { return widen(bfloat16{bfloat16_bits(value)}); }
OPSMITH_DEVICE float round_to_float16(float value) { return widen(float16{float16_bits(value)}); }

// --- casts ------------------------------------------------------------------------------------------------------

template <class To, class From>
OPSMITH_DEVICE To cast(From from) {
  if constexpr (same_type<To, bool>) {
    return from != From(0);
  } else if constexpr (is_float<From> && same_type<To, uint8_t>) {
    return To(int64_t(from));  // as torch: -1.0 becomes 255 and not 0
  } else {
    return To(from);
  }
}

// An element as stored in memory.
template <class T, class From>
OPSMITH_DEVICE T narrow(From from) {
  if constexpr (same_type<T, bfloat16>) {
    return {bfloat16_bits(float(from))};
  } else if constexpr (same_type<T, float16>) {
    return {float16_bits(float(from))};
  } else {
    return cast<T>(from);
  }
}

}  // namespace opsmith
