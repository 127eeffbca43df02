// Division with a remainder, of floats and integers; shifts and powers of integers.
#pragma once

#include "cpu_math.h"

namespace opsmith {

// ---- Floats: remainders have the sign of the divisor, as torch's; the quotient is c10's div_floor_floating.

template <typename V>
OPSMITH_INLINE V float_fmod(V a, V b) {
  const V moderate = moderate::fmod(a, b);
  if constexpr (is_vector<V>) {
    const auto one = [](Element<V> x, Element<V> y) { return moderate::fmod(x, y); };
    if (any(is_inf(a / b))) return each_lane(a, b, one);
  }
  return moderate;
}
template <typename V>
OPSMITH_INLINE V float_remainder(V a, V b) {
  const V rest = float_fmod(a, b);
  const auto turned = logical_and(not_equal(rest, V{}), not_equal(less(b, V{}), less(rest, V{})));
  return select(turned, rest + b, rest);
}
template <typename V>
OPSMITH_INLINE V float_trunc_divide(V a, V b) {
  return trunc(a / b);
}
template <typename V>
OPSMITH_INLINE V float_floor_divide(V a, V b) {
  const V one = constant<V>(1);
  const V rest = float_fmod(a, b);
  V quotient = (a - rest) / b;
  const auto turned = logical_and(not_equal(rest, V{}), not_equal(less(b, V{}), less(rest, V{})));
  quotient = select(turned, quotient - one, quotient);
  V floored = floor(quotient);
  floored = select(greater(quotient - floored, constant<V>(0.5)), floored + one, floored);
  floored = select(equal(quotient, V{}), copysign(V{}, a / b), floored);
  return select(equal(b, V{}), a / b, floored);
}

// ---- Integers. Divided by zero they give zero, and the smallest divided by -1 wraps: the processor would raise.

template <typename T>
OPSMITH_INLINE T integer_trunc_divide(T a, T b) {
  return b == 0 ? T(0) : (b == T(-1) && T(-1) < 0) ? T(-a) : T(a / b);
}
template <typename T>
OPSMITH_INLINE T integer_fmod(T a, T b) {
  return b == 0 || (b == T(-1) && T(-1) < 0) ? T(0) : T(a % b);
}
template <typename T>
OPSMITH_INLINE T integer_remainder(T a, T b) {
  const T rest = integer_fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? T(rest + b) : rest;
}
template <typename T>
OPSMITH_INLINE T integer_floor_divide(T a, T b) {
  const T quotient = integer_trunc_divide(a, b);
  const T rest = integer_fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? T(quotient - 1) : quotient;
}
// Shifts by less than nothing or more than the bits push every bit out.
template <typename T>
OPSMITH_INLINE T integer_shift_left(T a, T b) {
  return b < 0 || b >= T(8 * sizeof(T)) ? T(0) : T(uint64_t(a) << b);
}
template <typename T>
OPSMITH_INLINE T integer_shift_right(T a, T b) {
  constexpr T most = T(8 * sizeof(T) - 1);
  if (b < 0 || b > most) return a < 0 ? T(-1) : T(0);
  return T(a >> b);
}
template <typename T>
OPSMITH_INLINE T integer_pow(T base, T exponent) {
  if (exponent < 0) return base == 1 ? T(1) : base == T(-1) ? T(exponent % 2 ? -1 : 1) : T(0);
  T power = 1;
  for (; exponent; exponent = T(exponent / 2), base = T(base * base)) {
    if (exponent % 2) power = T(power * base);
  }
  return power;
}

// ---- What kernels call.

template <typename V, typename F>
OPSMITH_INLINE V each_integer(V a, V b, F f) {
  if constexpr (is_vector<V>) {
    return each_lane(a, b, f);
  } else {
    return f(a, b);
  }
}
#define OPSMITH_INTEGERS(name) \
  each_integer(a, A(b), [](Element<A> x, Element<A> y) { return integer_##name<Element<A>>(x, y); })

#define OPSMITH_DIVISION(name)                \
  template <typename A, typename B>           \
  OPSMITH_INLINE A name(A a, B b) {           \
    if constexpr (is_float<Element<A>>) {     \
      return float_##name(a, A(b));           \
    } else {                                  \
      return OPSMITH_INTEGERS(name);          \
    }                                         \
  }
OPSMITH_DIVISION(trunc_divide)
OPSMITH_DIVISION(floor_divide)
OPSMITH_DIVISION(remainder)
OPSMITH_DIVISION(fmod)
#undef OPSMITH_DIVISION

template <typename A, typename B>
OPSMITH_INLINE A shift_left(A a, B b) {
  return OPSMITH_INTEGERS(shift_left);
}
template <typename A, typename B>
OPSMITH_INLINE A shift_right(A a, B b) {
  return OPSMITH_INTEGERS(shift_right);
}
template <typename A, typename B>
OPSMITH_INLINE A pow(A a, B b) {  // of floats: cpu_math.h
  return OPSMITH_INTEGERS(pow);
}
#undef OPSMITH_INTEGERS

}  // namespace opsmith
