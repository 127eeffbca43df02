// The largest or smallest of elements of a half type, two at a time: half types order as the floats that they are.
#pragma once

#include <opsmith/pointwise/cuda_memory.h>
#include <opsmith/rows/cuda_teams.h>

namespace opsmith {

template <class Operation, class T>
OPSMITH_DEVICE uint32_t of_pairs(uint32_t a, uint32_t b) {
  constexpr bool highest = same_type<Operation, Highest>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t found;
  if constexpr (same_type<T, bfloat16> && highest) {
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
  } else if constexpr (same_type<T, bfloat16>) {
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
  } else if constexpr (highest) {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
  } else {
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(found) : "r"(a), "r"(b));
  }
  return found;
#else
  const float low = Operation::of(widen(T{uint16_t(a)}), widen(T{uint16_t(b)}));
  const float high = Operation::of(widen(T{uint16_t(a >> 16)}), widen(T{uint16_t(b >> 16)}));
  return uint32_t(narrow<T>(low).bits) | uint32_t(narrow<T>(high).bits) << 16;
#endif
}

// Magnitudes: of the elements' absolute values.
template <class Operation, class T, bool Magnitudes>
class Pairs {
 public:
  // The elements `lane` and `lane + 1` of a pack.
  template <int V>
  OPSMITH_DEVICE void take(const Pack<T, V>& pack, int lane) {
    if constexpr (V > 1) {
      const uint32_t pair = bits_as<Pack<uint32_t, V / 2>>(pack).element[lane / 2];
      found_ = of_pairs<Operation, T>(found_, Magnitudes ? pair & 0x7fff7fffu : pair);
    }
  }
  OPSMITH_DEVICE float value() const {
    return Operation::of(widen(T{uint16_t(found_)}), widen(T{uint16_t(found_ >> 16)}));
  }

 private:
  static constexpr uint32_t infinite = same_type<T, bfloat16> ? 0x7f807f80u : 0x7c007c00u;
  uint32_t found_ = same_type<Operation, Highest> ? infinite | 0x80008000u : infinite;
};

}  // namespace opsmith
