// Special functions that C does not have: inverses of the error function, the normal distribution, Bessel's I0 and I1.
//
// They are computed in long double, whose bits beyond a double's leave the result about half a unit in the last place off.
#pragma once

#include <math.h>

namespace opsmith::emulator {

using Wide = long double;

constexpr Wide kPi = 3.141592653589793238462643383279502884L;
constexpr Wide kRootOfPi = 1.772453850905516027298167483341145183L;
constexpr Wide kRootOfHalf = 0.707106781186547524400844362104849039L;

// e^(x*x) erfc(x).
inline Wide scaled_erfc(Wide x) {
  if (x < 10) return expl(x * x) * erfcl(x);
  // 1 / (x sqrt(pi)) * (1 - 1 / (2 x^2) + 1 * 3 / (2 x^2)^2 - ...), whose 20th term at 10 is less than 2^-64.
  const Wide step = 1 / (2 * x * x);
  Wide term = 1, sum = 1;
  for (int k = 1; k < 40 && fabsl(term) > 1e-22L; ++k) sum += term *= -(2 * k - 1) * step;
  return sum / (x * kRootOfPi);
}

// The x > 0 for which erf(x) = y, where 0 <= y <= 0.5: Newton's method from a place near enough for four steps.
inline Wide inverse_erf(Wide y) {
  Wide x = y * kRootOfPi / 2;
  for (int i = 0; i < 4; ++i) x -= (erfl(x) - y) * kRootOfPi / 2 * expl(x * x);
  return x;
}

// The x for which erfc(x) = y, where 0 < y < 0.5: Newton's method on the logarithm, in which erfc is nearly a parabola.
inline Wide inverse_erfc(Wide y) {
  const Wide wanted = logl(y);
  Wide x = sqrtl(-wanted);
  for (int i = 0; i < 8; ++i) {
    const Wide scaled = scaled_erfc(x);
    x += (logl(scaled) - x * x - wanted) * kRootOfPi / 2 * scaled;
  }
  return x;
}

// The x for which erfc(x) = y.
inline Wide any_inverse_erfc(Wide y) {
  if (!(y >= 0 && y <= 2)) return NAN;
  if (y == 0 || y == 2) return y == 0 ? INFINITY : -INFINITY;
  if (y < 0.5L) return inverse_erfc(y);
  if (y > 1.5L) return -inverse_erfc(2 - y);
  return copysignl(inverse_erf(fabsl(1 - y)), 1 - y);
}

inline Wide any_inverse_erf(Wide y) {
  const Wide size = fabsl(y);
  if (!(size <= 1)) return NAN;
  if (size == 1) return copysignl(INFINITY, y);
  return copysignl(size <= 0.5L ? inverse_erf(size) : inverse_erfc(1 - size), y);
}

inline Wide normal_distribution(Wide x) { return erfcl(-x * kRootOfHalf) / 2; }
inline Wide inverse_normal_distribution(Wide p) { return -any_inverse_erfc(2 * p) / kRootOfHalf; }

// The sum of (x/2)^(2k + ORDER) / (k! (k + ORDER)!): every term has the sign of the first, so that nothing cancels.
template <int ORDER>
inline Wide bessel_i(Wide x) {
  if (isnan(x)) return x;
  if (fabsl(x) > 750) return ORDER % 2 ? copysignl(INFINITY, x) : INFINITY;  // more than a double holds
  const Wide step = x * x / 4;
  Wide term = ORDER == 0 ? 1 : x / 2, sum = term;
  for (int k = 1; fabsl(term) > 1e-22L * fabsl(sum); ++k) sum += term *= step / (Wide(k) * (k + ORDER));
  return sum;
}

// The sine and cosine of pi x: x is brought into [-1/4, 1/4] exactly, by quarters of a turn. At a whole number the sine
// is a zero of x's sign, and halfway between two the cosine is +0.
struct Turned {
  Wide sine, cosine;
};
inline Turned turned(Wide x) {
  if (!isfinite(x)) return {NAN, NAN};
  const Wide part = fmodl(x, 2), quarters = rintl(2 * part);
  const Wide rest = (part - quarters / 2) * kPi;
  const Wide sine = sinl(rest), cosine = cosl(rest);
  const int quarter = static_cast<int>(quarters) & 3;
  const Wide s = quarter == 0 ? sine : quarter == 1 ? cosine : quarter == 2 ? -sine : -cosine;
  const Wide c = quarter == 0 ? cosine : quarter == 1 ? -sine : quarter == 2 ? -cosine : sine;
  return {s == 0 ? copysignl(0, x) : s, c == 0 ? 0 : c};
}
inline Wide sine_of(Wide x) { return turned(x).sine; }
inline Wide cosine_of(Wide x) { return turned(x).cosine; }

// The length of a vector. A long double holds the square of any double; infinity prevails over NaN.
template <typename... Values>
inline Wide length(Values... values) {
  if ((isinf(values) || ...)) return INFINITY;
  return sqrtl(((static_cast<Wide>(values) * static_cast<Wide>(values)) + ...));
}
template <typename Value>
__forceinline__ Wide length_of(int count, const Value* values) {
  Wide sum = 0;
  bool endless = false;
  for (int i = 0; i < count; ++i) {
    const Value value = values[i];
    endless = endless || isinf(value);
    sum += static_cast<Wide>(value) * static_cast<Wide>(value);
  }
  return endless ? INFINITY : sqrtl(sum);
}

}  // namespace opsmith::emulator

// For double and for float, the latter under its own name as well.
#define OPSMITH_SPECIAL(name, function)                                                                            \
  inline double name(double x) { return static_cast<double>(opsmith::emulator::function(x)); }                     \
  inline float name##f(float x) { return static_cast<float>(opsmith::emulator::function(x)); }                     \
  inline float name(float x) { return name##f(x); }
OPSMITH_SPECIAL(erfinv, any_inverse_erf)
OPSMITH_SPECIAL(erfcinv, any_inverse_erfc)
OPSMITH_SPECIAL(erfcx, scaled_erfc)
OPSMITH_SPECIAL(normcdf, normal_distribution)
OPSMITH_SPECIAL(normcdfinv, inverse_normal_distribution)
OPSMITH_SPECIAL(cyl_bessel_i0, bessel_i<0>)
OPSMITH_SPECIAL(cyl_bessel_i1, bessel_i<1>)
OPSMITH_SPECIAL(sinpi, sine_of)
OPSMITH_SPECIAL(cospi, cosine_of)
#undef OPSMITH_SPECIAL

#define OPSMITH_SINE_AND_COSINE(name, type)                          \
  __forceinline__ void name(type x, type* sine, type* cosine) {      \
    const opsmith::emulator::Turned both = opsmith::emulator::turned(x); \
    *sine = static_cast<type>(both.sine);                            \
    *cosine = static_cast<type>(both.cosine);                        \
  }
OPSMITH_SINE_AND_COSINE(sincospi, double)
OPSMITH_SINE_AND_COSINE(sincospi, float)
OPSMITH_SINE_AND_COSINE(sincospif, float)
#undef OPSMITH_SINE_AND_COSINE

#define OPSMITH_LENGTH(type, ending)                                                                                      \
  inline type rhypot##ending(type x, type y) { return static_cast<type>(1 / opsmith::emulator::length(x, y)); }           \
  inline type norm3d##ending(type x, type y, type z) { return static_cast<type>(opsmith::emulator::length(x, y, z)); }    \
  inline type rnorm3d##ending(type x, type y, type z) { return static_cast<type>(1 / opsmith::emulator::length(x, y, z)); } \
  inline type norm4d##ending(type x, type y, type z, type w) {                                                            \
    return static_cast<type>(opsmith::emulator::length(x, y, z, w));                                                      \
  }                                                                                                                       \
  inline type rnorm4d##ending(type x, type y, type z, type w) {                                                           \
    return static_cast<type>(1 / opsmith::emulator::length(x, y, z, w));                                                  \
  }                                                                                                                       \
  __forceinline__ type norm##ending(int count, const type* values) {                                                      \
    return static_cast<type>(opsmith::emulator::length_of(count, values));                                                \
  }                                                                                                                       \
  __forceinline__ type rnorm##ending(int count, const type* values) {                                                     \
    return static_cast<type>(1 / opsmith::emulator::length_of(count, values));                                            \
  }
OPSMITH_LENGTH(double, )
OPSMITH_LENGTH(float, f)
#undef OPSMITH_LENGTH
