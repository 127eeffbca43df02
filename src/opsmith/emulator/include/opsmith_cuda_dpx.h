// Maxima and minima of three, of a sum and a number, with 0, and which one it was: CUDA's DPX functions.
#pragma once

#include "opsmith_cuda_video.h"

namespace opsmith::emulator {

template <typename Number>
struct Whole {
  static Number greater(Number a, Number b) { return a < b ? b : a; }
  static Number smaller(Number a, Number b) { return b < a ? b : a; }
  static Number sum(Number a, Number b) { return static_cast<Number>(static_cast<unsigned>(a) + static_cast<unsigned>(b)); }
};

template <typename Part>
struct Pair {
  static unsigned greater(unsigned a, unsigned b) {
    return Parts<Part>::apply([](int x, int y) { return x < y ? y : x; }, a, b);
  }
  static unsigned smaller(unsigned a, unsigned b) {
    return Parts<Part>::apply([](int x, int y) { return y < x ? y : x; }, a, b);
  }
  static unsigned sum(unsigned a, unsigned b) {
    return Parts<Part>::apply([](int x, int y) { return x + y; }, a, b);
  }
};

}  // namespace opsmith::emulator

#define OPSMITH_MAXIMA(type, number, kind)                                                                                 \
  inline number __vimax3_##type(number a, number b, number c) { return kind::greater(kind::greater(a, b), c); }            \
  inline number __vimin3_##type(number a, number b, number c) { return kind::smaller(kind::smaller(a, b), c); }            \
  inline number __viaddmax_##type(number a, number b, number c) { return kind::greater(kind::sum(a, b), c); }              \
  inline number __viaddmin_##type(number a, number b, number c) { return kind::smaller(kind::sum(a, b), c); }
#define OPSMITH_MAXIMA_WITH_0(type, number, kind)                                                                          \
  inline number __vimax_##type##_relu(number a, number b) { return kind::greater(kind::greater(a, b), 0); }                \
  inline number __vimin_##type##_relu(number a, number b) { return kind::greater(kind::smaller(a, b), 0); }                \
  inline number __vimax3_##type##_relu(number a, number b, number c) { return kind::greater(__vimax3_##type(a, b, c), 0); } \
  inline number __vimin3_##type##_relu(number a, number b, number c) { return kind::greater(__vimin3_##type(a, b, c), 0); } \
  inline number __viaddmax_##type##_relu(number a, number b, number c) {                                                   \
    return kind::greater(__viaddmax_##type(a, b, c), 0);                                                                   \
  }                                                                                                                        \
  inline number __viaddmin_##type##_relu(number a, number b, number c) {                                                   \
    return kind::greater(__viaddmin_##type(a, b, c), 0);                                                                   \
  }
OPSMITH_MAXIMA(s32, int, opsmith::emulator::Whole<int>)
OPSMITH_MAXIMA(u32, unsigned, opsmith::emulator::Whole<unsigned>)
OPSMITH_MAXIMA(s16x2, unsigned, opsmith::emulator::Pair<int16_t>)
OPSMITH_MAXIMA(u16x2, unsigned, opsmith::emulator::Pair<uint16_t>)
OPSMITH_MAXIMA_WITH_0(s32, int, opsmith::emulator::Whole<int>)
OPSMITH_MAXIMA_WITH_0(s16x2, unsigned, opsmith::emulator::Pair<int16_t>)
#undef OPSMITH_MAXIMA
#undef OPSMITH_MAXIMA_WITH_0

// `is_first` is whether it is a; of pairs, that of the upper half comes first.
#define OPSMITH_CHOICE(type, number)                                                         \
  __forceinline__ number __vibmax_##type(number a, number b, bool* is_first) {               \
    *is_first = a >= b;                                                                      \
    return a >= b ? a : b;                                                                   \
  }                                                                                          \
  __forceinline__ number __vibmin_##type(number a, number b, bool* is_first) {               \
    *is_first = a <= b;                                                                      \
    return a <= b ? a : b;                                                                   \
  }
OPSMITH_CHOICE(s32, int)
OPSMITH_CHOICE(u32, unsigned)
#undef OPSMITH_CHOICE
#define OPSMITH_CHOICE_OF_PAIRS(name, choice, type, number, sign)                                                        \
  __forceinline__ unsigned name##_##type(unsigned a, unsigned b, bool* upper_is_first, bool* lower_is_first) {         \
    using Parts = opsmith::emulator::Parts<number>;                                                                      \
    *upper_is_first = Parts::part(a, 1) sign Parts::part(b, 1);                                                        \
    *lower_is_first = Parts::part(a, 0) sign Parts::part(b, 0);                                                        \
    return opsmith::emulator::Pair<number>::choice(a, b);                                                                \
  }
OPSMITH_CHOICE_OF_PAIRS(__vibmax, greater, s16x2, int16_t, >=)
OPSMITH_CHOICE_OF_PAIRS(__vibmax, greater, u16x2, uint16_t, >=)
OPSMITH_CHOICE_OF_PAIRS(__vibmin, smaller, s16x2, int16_t, <=)
OPSMITH_CHOICE_OF_PAIRS(__vibmin, smaller, u16x2, uint16_t, <=)
#undef OPSMITH_CHOICE_OF_PAIRS
