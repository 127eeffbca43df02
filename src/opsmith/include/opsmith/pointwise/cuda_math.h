// The functions that expressions are written in, on one element: what holds for every type, and those of libm.
//
// Values, also at infinities, NaN and the two zeros, are torch's. Activations and their fast forms are in
// cuda_activations.h.
#pragma once

#include <opsmith/pointwise/cuda_types.h>

// A function of CUDA's own; elsewhere the compiler's, which needs no header either.
#if defined(__CUDACC__)
#define OPSMITH_LIBM(name) ::name
#else
#define OPSMITH_LIBM(name) __builtin_##name
#endif

namespace opsmith {

template <class T>
OPSMITH_DEVICE T infinity() {
  if constexpr (same_type<T, float>) {
    return bits_as<float>(0x7f800000u);
  } else {
    return bits_as<double>(uint64_t(0x7ff0000000000000ull));
  }
}

template <class T>
OPSMITH_DEVICE T not_a_number() {
  if constexpr (same_type<T, float>) {
    return bits_as<float>(0x7fc00000u);
  } else {
    return bits_as<double>(uint64_t(0x7ff8000000000000ull));
  }
}

// --- comparisons, conditions --------------------------------------------------------------------------------------

template <class T>
OPSMITH_DEVICE bool less(T a, T b) {
  return a < b;
}
template <class T>
OPSMITH_DEVICE bool less_equal(T a, T b) {
  return a <= b;
}
template <class T>
OPSMITH_DEVICE bool greater(T a, T b) {
  return a > b;
}
template <class T>
OPSMITH_DEVICE bool greater_equal(T a, T b) {
  return a >= b;
}
template <class T>
OPSMITH_DEVICE bool equal(T a, T b) {
  return a == b;
}
template <class T>
OPSMITH_DEVICE bool not_equal(T a, T b) {
  return a != b;
}

OPSMITH_DEVICE bool logical_and(bool a, bool b) { return a && b; }
OPSMITH_DEVICE bool logical_or(bool a, bool b) { return a || b; }
OPSMITH_DEVICE bool logical_xor(bool a, bool b) { return a != b; }
OPSMITH_DEVICE bool logical_not(bool a) { return !a; }

template <class T>
OPSMITH_DEVICE T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}

template <class T>
OPSMITH_DEVICE bool is_nan(T x) {
  return x != x;
}

template <class T>
OPSMITH_DEVICE bool is_inf(T x) {
  if constexpr (is_float<T>) {
    return x == infinity<T>() || x == -infinity<T>();
  } else {
    return false;
  }
}

template <class T>
OPSMITH_DEVICE bool is_finite(T x) {
  if constexpr (is_float<T>) {
    return x - x == T(0);
  } else {
    return true;
  }
}

template <class T>
OPSMITH_DEVICE bool sign_bit(T x) {
  if constexpr (same_type<T, float>) {
    return bits_as<int32_t>(x) < 0;
  } else if constexpr (same_type<T, double>) {
    return bits_as<int64_t>(x) < 0;
  } else {
    return x < T(0);
  }
}

// --- numbers of every type ----------------------------------------------------------------------------------------

template <class T>
OPSMITH_DEVICE T minimum(T a, T b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (same_type<T, float>) {
    float least;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
    return least;
  }
#endif
  return a < b || a != a ? a : b;
}

template <class T>
OPSMITH_DEVICE T maximum(T a, T b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (same_type<T, float>) {
    float greatest;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(greatest) : "f"(a), "f"(b));
    return greatest;
  }
#endif
  return a > b || a != a ? a : b;
}

template <class T>
OPSMITH_DEVICE T absolute(T x) {
  if constexpr (same_type<T, float>) {
    return OPSMITH_LIBM(fabsf)(x);
  } else if constexpr (same_type<T, double>) {
    return OPSMITH_LIBM(fabs)(x);
  } else {
    return x < T(0) ? T(-x) : x;
  }
}

template <class T>
OPSMITH_DEVICE T sign(T x) {
  return T((T(0) < x) - (x < T(0)));
}

// --- libm ---------------------------------------------------------------------------------------------------------

#define OPSMITH_UNARY(name, single, full)                                         \
  OPSMITH_DEVICE float name(float x) { return OPSMITH_LIBM(single)(x); } \
  OPSMITH_DEVICE double name(double x) { return OPSMITH_LIBM(full)(x); }
#define OPSMITH_BINARY(name, single, full)                                                    \
  OPSMITH_DEVICE float name(float a, float b) { return OPSMITH_LIBM(single)(a, b); } \
  OPSMITH_DEVICE double name(double a, double b) { return OPSMITH_LIBM(full)(a, b); }

OPSMITH_UNARY(floor, floorf, floor)
OPSMITH_UNARY(ceil, ceilf, ceil)
OPSMITH_UNARY(trunc, truncf, trunc)
OPSMITH_UNARY(round, rintf, rint)  // half to even
OPSMITH_UNARY(exp2, exp2f, exp2)
OPSMITH_UNARY(expm1, expm1f, expm1)
OPSMITH_UNARY(log, logf, log)
OPSMITH_UNARY(log2, log2f, log2)
OPSMITH_UNARY(log10, log10f, log10)
OPSMITH_UNARY(log1p, log1pf, log1p)
OPSMITH_UNARY(sqrt, sqrtf, sqrt)
OPSMITH_UNARY(sin, sinf, sin)
OPSMITH_UNARY(cos, cosf, cos)
OPSMITH_UNARY(tan, tanf, tan)
OPSMITH_UNARY(asin, asinf, asin)
OPSMITH_UNARY(acos, acosf, acos)
OPSMITH_UNARY(atan, atanf, atan)
OPSMITH_UNARY(sinh, sinhf, sinh)
OPSMITH_UNARY(cosh, coshf, cosh)
OPSMITH_UNARY(asinh, asinhf, asinh)
OPSMITH_UNARY(acosh, acoshf, acosh)
OPSMITH_UNARY(atanh, atanhf, atanh)
OPSMITH_UNARY(erf, erff, erf)
OPSMITH_UNARY(erfc, erfcf, erfc)
OPSMITH_UNARY(lgamma, lgammaf, lgamma)

OPSMITH_BINARY(fmin, fminf, fmin)
OPSMITH_BINARY(fmax, fmaxf, fmax)
OPSMITH_BINARY(copysign, copysignf, copysign)
OPSMITH_BINARY(hypot, hypotf, hypot)
OPSMITH_BINARY(atan2, atan2f, atan2)
OPSMITH_BINARY(pow, powf, pow)

OPSMITH_DEVICE float fma(float a, float b, float c) { return OPSMITH_LIBM(fmaf)(a, b, c); }
OPSMITH_DEVICE double fma(double a, double b, double c) { return OPSMITH_LIBM(fma)(a, b, c); }

template <class T>
OPSMITH_DEVICE T reciprocal(T x) {
  return T(1) / x;
}

#if defined(__CUDACC__)
OPSMITH_UNARY(rsqrt, rsqrtf, rsqrt)
OPSMITH_UNARY(erfinv, erfinvf, erfinv)
#else
template <class T>
T rsqrt(T x) {
  return T(1) / sqrt(x);
}

inline double erfinv(double y) {
  if (!(absolute(y) < 1)) return absolute(y) == 1 ? y * infinity<double>() : not_a_number<double>();
  // Winitzki's closed form, then Newton steps on erfc of the tail, where erf itself has no digits left.
  const double logarithm = log1p(-y * y);
  const double half = 2 / (3.14159265358979323846 * 0.147) + logarithm / 2;
  double x = sqrt(sqrt(half * half - logarithm / 0.147) - half);
  const double tail = 1 - absolute(y);
  for (int step = 0; step < 4; ++step) {
    const double error = x < 0.5 ? erf(x) - absolute(y) : tail - erfc(x);
    x -= error * 0.88622692545275801365 * OPSMITH_LIBM(exp)(x * x);
  }
  return y == 0 ? y : copysign(x, y);
}
inline float erfinv(float y) { return float(erfinv(double(y))); }
#endif

// --- quotients and remainders -------------------------------------------------------------------------------------

template <class T>
OPSMITH_DEVICE T fmod(T a, T b) {
  if constexpr (same_type<T, float>) {
    return OPSMITH_LIBM(fmodf)(a, b);
  } else if constexpr (same_type<T, double>) {
    return OPSMITH_LIBM(fmod)(a, b);
  } else {
    return T(a % b);
  }
}

// Of the divisor's sign.
template <class T>
OPSMITH_DEVICE T remainder(T a, T b) {
  const T rest = fmod(a, b);
  return rest != T(0) && (b < T(0)) != (rest < T(0)) ? T(rest + b) : rest;
}

template <class T>
OPSMITH_DEVICE T trunc_divide(T a, T b) {
  if constexpr (is_float<T>) {
    return trunc(a / b);
  } else {
    return T(a / b);
  }
}

// c10's div_floor_floating, and its div_floor_integer.
template <class T>
OPSMITH_DEVICE T floor_divide(T a, T b) {
  if constexpr (is_float<T>) {
    if (b == T(0)) return a / b;
    const T rest = fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != T(0) && (b < T(0)) != (rest < T(0))) quotient -= T(1);
    if (quotient == T(0)) return copysign(T(0), a / b);
    const T whole = floor(quotient);
    return quotient - whole > T(0.5) ? whole + T(1) : whole;
  } else {
    const T quotient = T(a / b);
    return a % b != 0 && (a < T(0)) != (b < T(0)) ? T(quotient - 1) : quotient;
  }
}

// --- integers -----------------------------------------------------------------------------------------------------

// Shifts by more than there are bits, or by less than none, give what shifting bit by bit would.
template <class T>
OPSMITH_DEVICE T shift_left(T a, T b) {
  return b < T(0) || b >= T(8 * sizeof(T)) ? T(0) : T(uint64_t(a) << b);
}

template <class T>
OPSMITH_DEVICE T shift_right(T a, T b) {
  // The sign of a signed number fills from the left, so that its own width less one shifts all else out.
  constexpr int last = 8 * sizeof(T) - (T(-1) < T(0) ? 1 : 0);
  if (b < T(0) || b >= T(8 * sizeof(T))) return T(int64_t(a) >> last);
  return T(a >> b);
}

template <class T>
OPSMITH_DEVICE T integer_power(T base, T exponent) {
  if (exponent < T(0)) {
    if (base == T(1)) return T(1);
    return base == T(-1) ? T(exponent % 2 != 0 ? -1 : 1) : T(0);
  }
  uint64_t power = 1;
  uint64_t square = uint64_t(base);
  for (uint64_t rest = uint64_t(exponent); rest != 0; rest >>= 1) {
    if (rest & 1) power *= square;
    square *= square;
  }
  return T(power);
}

OPSMITH_DEVICE int8_t pow(int8_t a, int8_t b) { return integer_power(a, b); }
OPSMITH_DEVICE uint8_t pow(uint8_t a, uint8_t b) { return integer_power(a, b); }
OPSMITH_DEVICE int16_t pow(int16_t a, int16_t b) { return integer_power(a, b); }
OPSMITH_DEVICE int32_t pow(int32_t a, int32_t b) { return integer_power(a, b); }
OPSMITH_DEVICE int64_t pow(int64_t a, int64_t b) { return integer_power(a, b); }

}  // namespace opsmith
