// The functions of pointwise kernels on the CPU, each on vectors and on plain numbers.
//
// With OPSMITH_SLEEF defined, vectors go to the Sleef functions that torch's own kernels call and libtorch_cpu exports;
// without it, lane by lane to libm. A few functions of floats are here inline, in cpu_float.h.
#pragma once

#include "cpu_float.h"
#include "cpu_vector.h"

// Vectors of doubles exist only in kernels whose vectors are short enough for them.
#if defined(__AVX512F__)
#define OPSMITH_BYTES 64
#elif defined(__AVX2__)
#define OPSMITH_BYTES 32
#else
#define OPSMITH_BYTES 16
#undef OPSMITH_SLEEF
#endif
#define OPSMITH_DOUBLES (OPSMITH_LANES * 8 <= OPSMITH_BYTES)

namespace opsmith {

// ---- From libm and Sleef: name, arity, Sleef's suffix, which is its largest error in tenths of an ULP.

#ifdef OPSMITH_SLEEF
// Sleef has vectors of 8 and 16 floats; four floats take the lower half of eight.
#if OPSMITH_LANES == 16
#define OPSMITH_SLEEF_FLOAT(name, accuracy) Sleef_##name##f16##accuracy
typedef Vec<float> SleefFloat;
#else
#define OPSMITH_SLEEF_FLOAT(name, accuracy) Sleef_##name##f8##accuracy
typedef float SleefFloat __attribute__((vector_size(32)));
#endif
#if OPSMITH_LANES == 8
#define OPSMITH_SLEEF_DOUBLE(name, accuracy) Sleef_##name##d8##accuracy
#else
#define OPSMITH_SLEEF_DOUBLE(name, accuracy) Sleef_##name##d4##accuracy
#endif

template <typename To, typename From>
OPSMITH_INLINE To resize(From x) {
  To result{};
  __builtin_memcpy(&result, &x, sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
  return result;
}

#define OPSMITH_VECTOR_1(T, Wide, sleef, name)                                  \
  extern "C" __attribute__((const, nothrow)) Wide sleef(Wide);                  \
  OPSMITH_INLINE Vec<T> name(Vec<T> x) { return resize<Vec<T>>(sleef(resize<Wide>(x))); }
#define OPSMITH_VECTOR_2(T, Wide, sleef, name)                                  \
  extern "C" __attribute__((const, nothrow)) Wide sleef(Wide, Wide);            \
  OPSMITH_INLINE Vec<T> name(Vec<T> x, Vec<T> y) {                              \
    return resize<Vec<T>>(sleef(resize<Wide>(x), resize<Wide>(y)));             \
  }
#define OPSMITH_FLOATS(arity, name, accuracy) \
  OPSMITH_VECTOR_##arity(float, SleefFloat, OPSMITH_SLEEF_FLOAT(name, accuracy), name)
#define OPSMITH_DOUBLES_(arity, name, accuracy) \
  OPSMITH_VECTOR_##arity(double, Vec<double>, OPSMITH_SLEEF_DOUBLE(name, accuracy), name)
#else
#define OPSMITH_VECTOR_1(T, name) \
  OPSMITH_INLINE Vec<T> name(Vec<T> x) { return each_lane(x, [](T a) { return name(a); }); }
#define OPSMITH_VECTOR_2(T, name) \
  OPSMITH_INLINE Vec<T> name(Vec<T> x, Vec<T> y) { return each_lane(x, y, [](T a, T b) { return name(a, b); }); }
#define OPSMITH_FLOATS(arity, name, accuracy) OPSMITH_VECTOR_##arity(float, name)
#define OPSMITH_DOUBLES_(arity, name, accuracy) OPSMITH_VECTOR_##arity(double, name)
#endif

#define OPSMITH_NUMBER_1(name)                                      \
  OPSMITH_INLINE float name(float x) { return __builtin_##name##f(x); } \
  OPSMITH_INLINE double name(double x) { return __builtin_##name(x); }
#define OPSMITH_NUMBER_2(name)                                                     \
  OPSMITH_INLINE float name(float x, float y) { return __builtin_##name##f(x, y); } \
  OPSMITH_INLINE double name(double x, double y) { return __builtin_##name(x, y); }

#if !OPSMITH_DOUBLES
#undef OPSMITH_DOUBLES_
#define OPSMITH_DOUBLES_(arity, name, accuracy)
#endif
#define OPSMITH_FUNCTION_BUT_FLOATS(arity, name, accuracy) \
  OPSMITH_NUMBER_##arity(name) OPSMITH_DOUBLES_(arity, name, accuracy)
#define OPSMITH_FUNCTION(arity, name, accuracy) \
  OPSMITH_FUNCTION_BUT_FLOATS(arity, name, accuracy) OPSMITH_FLOATS(arity, name, accuracy)

OPSMITH_FUNCTION_BUT_FLOATS(1, exp, _u10)
OPSMITH_FUNCTION_BUT_FLOATS(1, tanh, _u10)
OPSMITH_FUNCTION_BUT_FLOATS(1, erf, _u10)
OPSMITH_FUNCTION(1, exp2, _u10)
OPSMITH_FUNCTION(1, expm1, _u10)
OPSMITH_FUNCTION(1, log, _u10)
OPSMITH_FUNCTION(1, log2, _u10)
OPSMITH_FUNCTION(1, log10, _u10)
OPSMITH_FUNCTION(1, log1p, _u10)
OPSMITH_FUNCTION(1, sin, _u10)
OPSMITH_FUNCTION(1, cos, _u10)
OPSMITH_FUNCTION(1, tan, _u10)
OPSMITH_FUNCTION(1, asin, _u10)
OPSMITH_FUNCTION(1, acos, _u10)
OPSMITH_FUNCTION(1, atan, _u10)
OPSMITH_FUNCTION(1, atanh, _u10)
OPSMITH_FUNCTION(1, erfc, _u15)
OPSMITH_FUNCTION(1, lgamma, _u10)
OPSMITH_FUNCTION(2, pow, _u10)
OPSMITH_FUNCTION(2, atan2, _u10)
OPSMITH_FUNCTION(2, hypot, _u05)

// Sleef overflows early here: where an argument is large, see below.
namespace moderate {
OPSMITH_FUNCTION(2, fmod, )
OPSMITH_FUNCTION(1, sinh, _u10)
OPSMITH_FUNCTION(1, cosh, _u10)
OPSMITH_FUNCTION(1, asinh, _u10)
OPSMITH_FUNCTION(1, acosh, _u10)
}  // namespace moderate

// ---- From the processor: one instruction each, if it has one.

#define OPSMITH_INSTRUCTION(name, builtin)                                   \
  OPSMITH_INLINE float name(float x) { return __builtin_##builtin##f(x); }   \
  OPSMITH_INLINE double name(double x) { return __builtin_##builtin(x); }    \
  template <typename V>                                                      \
  OPSMITH_INLINE V name(V x) {                                               \
    return each_lane(x, [](Element<V> a) { return name(a); });               \
  }
OPSMITH_INSTRUCTION(floor, floor)
OPSMITH_INSTRUCTION(ceil, ceil)
OPSMITH_INSTRUCTION(trunc, trunc)
OPSMITH_INSTRUCTION(round, rint)  // half to even
OPSMITH_INSTRUCTION(sqrt, sqrt)
#undef OPSMITH_INSTRUCTION

// ---- Signs and kinds of floats, by their bits.

template <typename V>
OPSMITH_INLINE Truth<V> sign_bit(V x) {
  if constexpr (is_vector<V>) {
    return mask((Bits<V>)x < 0);
  } else {
    return __builtin_signbit(x) != 0;
  }
}
template <typename V>
OPSMITH_INLINE V copysign(V magnitude, V sign) {
  if constexpr (is_vector<V>) {
    const Bits<V> signs = (Bits<V>)(-V{});
    return (V)(((Bits<V>)magnitude & ~signs) | ((Bits<V>)sign & signs));
  } else {
    return __builtin_copysign(magnitude, sign);
  }
}
template <typename V>
OPSMITH_INLINE V absolute(V x) {
  if constexpr (is_float<Element<V>>) {
    return copysign(x, V{});
  } else {
    return select(less(x, V{}), V(-x), x);
  }
}
template <typename V>
OPSMITH_INLINE Truth<V> is_nan(V x) {
  return not_equal(x, x);
}
template <typename V>
OPSMITH_INLINE Truth<V> is_inf(V x) {
  return equal(absolute(x), constant<V>(infinity<double>()));
}
template <typename V>
OPSMITH_INLINE Truth<V> is_finite(V x) {
  return less(absolute(x), constant<V>(infinity<double>()));
}
template <typename V>
OPSMITH_INLINE V sign(V x) {  // 0 for NaN
  const V one = constant<V>(1), zero = V{};
  return V(select(greater(x, zero), one, zero) - select(less(x, zero), one, zero));
}

// ---- The lesser and the greater. A NaN wins in minimum and maximum and loses in fmin and fmax.

template <typename A, typename B>
OPSMITH_INLINE A minimum(A a, B b) {
  return select(logical_or(less(a, A(b)), not_equal(a, a)), a, A(b));
}
template <typename A, typename B>
OPSMITH_INLINE A maximum(A a, B b) {
  return select(logical_or(greater(a, A(b)), not_equal(a, a)), a, A(b));
}
OPSMITH_INLINE Mask minimum(Mask a, Mask b) { return a & b; }
OPSMITH_INLINE Mask maximum(Mask a, Mask b) { return a | b; }
template <typename V>
OPSMITH_INLINE V fmin(V a, V b) {
  return select(logical_or(less(a, b), not_equal(b, b)), a, b);
}
template <typename V>
OPSMITH_INLINE V fmax(V a, V b) {
  return select(logical_or(greater(a, b), not_equal(b, b)), a, b);
}

// ---- Large arguments of hyperbolic functions.

// e^|x| / 2, by two factors that do not overflow before it does.
template <typename V>
OPSMITH_INLINE V half_exp(V magnitude) {
  const V root = exp(magnitude * constant<V>(0.5));
  return constant<V>(0.5) * root * root;
}
template <typename V>
OPSMITH_INLINE V sinh(V x) {
  const auto large = greater(absolute(x), constant<V>(sizeof(Element<V>) == 8 ? 700 : 80));
  const V moderate = moderate::sinh(x);
  return any(large) ? select(large, copysign(half_exp(absolute(x)), x), moderate) : moderate;
}
template <typename V>
OPSMITH_INLINE V cosh(V x) {
  const auto large = greater(absolute(x), constant<V>(sizeof(Element<V>) == 8 ? 700 : 80));
  const V moderate = moderate::cosh(x);
  return any(large) ? select(large, half_exp(absolute(x)), moderate) : moderate;
}
// log(2 |x|) without the product, which may overflow.
template <typename V>
OPSMITH_INLINE V asinh(V x) {
  const auto large = greater(absolute(x), constant<V>(1e10));
  const V moderate = moderate::asinh(x);
  const auto logarithm = [&] { return log(absolute(x)) + constant<V>(0.69314718055994530942); };
  return any(large) ? select(large, copysign(logarithm(), x), moderate) : moderate;
}
template <typename V>
OPSMITH_INLINE V acosh(V x) {
  const auto large = greater(x, constant<V>(1e10));
  const V moderate = moderate::acosh(x);
  const auto logarithm = [&] { return log(x) + constant<V>(0.69314718055994530942); };
  return any(large) ? select(large, logarithm(), moderate) : moderate;
}

// ---- Composites.

template <typename V>
OPSMITH_INLINE V reciprocal(V x) {
  return constant<V>(1) / x;
}
template <typename V>
OPSMITH_INLINE V rsqrt(V x) {
  return constant<V>(1) / sqrt(x);
}
// e^-|x|, which cannot overflow.
template <typename V>
OPSMITH_INLINE V decay(V x) {
  return exp(-absolute(x));
}
template <typename V>
OPSMITH_INLINE V sigmoid(V x) {
  const V one = constant<V>(1);
  const V part = decay(x);
  return select(less(x, V{}), part, one) / (one + part);
}
template <typename V>
OPSMITH_INLINE V log1p_of_fraction(V x) {
  return log1p(x);
}
template <typename V>
OPSMITH_INLINE V softplus(V x) {
  return maximum(x, V{}) + log1p_of_fraction(decay(x));
}
// tanh(log(1 + e^x)) = m / (m + 2) with m = e^2x + 2 e^x; one exponential and one division.
template <typename V>
OPSMITH_INLINE V tanh_softplus(V x) {
  const V growth = exp(x);
  const V m = growth * growth + growth + growth;
  return select(greater(x, constant<V>(20)), constant<V>(1), m / (m + constant<V>(2)));
}
template <typename V>
OPSMITH_INLINE V sinc(V x) {
  const V angle = x * constant<V>(3.14159265358979323846);
  return select(equal(x, V{}), constant<V>(1), sin(angle) / angle);
}
template <typename V>
OPSMITH_INLINE V logaddexp(V a, V b) {
  const V sum = maximum(a, b) + log1p_of_fraction(decay(a - b));
  return select(logical_and(is_inf(a), equal(a, b)), a, sum);
}
template <typename V>
OPSMITH_INLINE V logaddexp2(V a, V b) {
  const V sum = maximum(a, b) + log1p_of_fraction(exp2(-absolute(a - b))) * constant<V>(1.44269504088896340736);
  return select(logical_and(is_inf(a), equal(a, b)), a, sum);
}
template <typename V>
OPSMITH_INLINE V xlogy(V x, V y) {
  return select(logical_and(equal(x, V{}), equal(y, y)), V{}, x * log(y));
}
template <typename V>
OPSMITH_INLINE V normal_pdf(V x) {
  return exp(x * x * constant<V>(-0.5)) * constant<V>(0.39894228040143267794);
}

template <typename V>
OPSMITH_INLINE V horner(V, double first) {
  return constant<V>(first);
}
template <typename V, typename... Terms>
OPSMITH_INLINE V horner(V x, double first, Terms... terms) {
  return horner(x, terms...) * x + constant<V>(first);
}

// Where OPSMITH_FAST_MATH is defined every floating tensor of the kernel is of a half type: as on a GPU the tail beyond
// |x| is then exp(-x*x/2) * t * P(t), t = 1 / (1 + 0.365 |x|), within 1e-6 also far out, where 1 + erf has few digits.
// From 14.4 on it is nothing.
template <typename V>
OPSMITH_INLINE V normal_cdf(V x) {
#if defined(OPSMITH_FAST_MATH)
  if constexpr (is_vector<V> && sizeof(Element<V>) == 4) {
    const V one = constant<V>(1), magnitude = at_most(magnitude_of(x), 14.4f);
    const V t = one / fused(constant<V>(0.365), magnitude, one);
    const V series = polynomial(t, 0.145678267f, 0.144241691f, 0.137966335f, 0.0351989046f, 0.165482581f,
                                -0.176751912f, 0.0481845774f);
    const V tail = exp_in_range(magnitude * magnitude * -0.5f) * t * series;
    return select(less(x, V{}), tail, one - tail);
  }
#endif
  return constant<V>(0.5) * (constant<V>(1) + erf(x * constant<V>(0.70710678118654752440)));
}

// First M. Giles's approximation for floats ("Approximating the erfinv function", 2010), and beyond its reach what
// follows from erfc(x) ~ exp(-x^2) / (x sqrt(pi)); then Halley's steps: on erf in the middle, and outside of it on
// erfc, which near one still knows what erf has rounded away.
template <typename V>
OPSMITH_INLINE V erfinv(V y) {
  const V one = constant<V>(1);
  const V magnitude = absolute(y);
  const V w = -log((one - magnitude) * (one + magnitude));
  const V root = sqrt(w);
  const V inner = w - constant<V>(2.5), outer = root - constant<V>(3);
  const V near = horner(inner, 1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
                        -3.5233877e-06, 3.43273939e-07, 2.81022636e-08);
  const V far = horner(outer, 2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844,
                       0.00134934322, 0.000100950558, -0.000200214257);
  V x = select(less(w, constant<V>(5)), near, far) * magnitude;
  if constexpr (sizeof(Element<V>) == 8) {
    const V farthest = sqrt(w - log(root * constant<V>(0.88622692545275801365)));
    x = select(greater(w, constant<V>(16)), farthest, x);
  }
  for (int step = 0; step < (sizeof(Element<V>) == 8 ? 2 : 1); ++step) {
    const V excess = select(less(magnitude, constant<V>(0.5)), erf(x) - magnitude, (one - magnitude) - erfc(x));
    const V newton = excess / (constant<V>(1.12837916709551257390) * exp(-x * x));
    x = x - newton / (one + x * newton);
  }
  x = select(equal(magnitude, one), constant<V>(infinity<double>()), x);
  return copysign(x, y);
}

}  // namespace opsmith
