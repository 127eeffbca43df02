// Exponentials, and what activations are made of them.
//
// Where OPSMITH_FAST_MATH is defined every floating tensor of the kernel is of a half type, of 8 or 11 bits. A kernel
// that keeps up with memory then has about 30 instructions an element, so these take the GPU's own exp2 and reciprocal.
// Their relative error stays under 2^-17, also where the value is small: far below what rounding the result shows.
#pragma once

#include <opsmith/pointwise/cuda_math.h>
#include <opsmith/pointwise/cuda_quick.h>

namespace opsmith {

// --- accurate -----------------------------------------------------------------------------------------------------

namespace accurate {

OPSMITH_UNARY(exp, expf, exp)
OPSMITH_UNARY(tanh, tanhf, tanh)

template <class T>
OPSMITH_DEVICE T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

template <class T>
OPSMITH_DEVICE T softplus(T x) {
  return (x > T(0) ? x : T(0)) + log1p(exp(-absolute(x)));
}

// With e = exp(x): tanh(log(1 + e)) = ((1 + e)^2 - 1) / ((1 + e)^2 + 1) = m / (m + 2), m = e^2 + 2e. It is 1 from 20
// on, also in double.
template <class T>
OPSMITH_DEVICE T tanh_softplus(T x) {
  const T e = exp(x);
  const T m = e * (e + T(2));
  return x > T(20) ? T(1) : m / (m + T(2));
}

// As torch's gelu has it. (normcdff keeps the digits of the far tail, and made gelu in float32 a quarter slower.)
template <class T>
OPSMITH_DEVICE T normal_cdf(T x) {
  return fma(T(0.5), erf(x * T(0.70710678118654752440)), T(0.5));
}

template <class T>
OPSMITH_DEVICE T normal_pdf(T x) {
  if (absolute(x) > T(40)) return T(0);  // also double has underflowed to zero
  // exp(-x*x/2) turns an error of x*x into one of the result: the product's rounding error is put back.
  const T square = x * x;
  const T missing = fma(x, x, -square);
  const T density = exp(T(-0.5) * square) * T(0.398942280401432677939946);
  return fma(density, T(-0.5) * missing, density);
}

}  // namespace accurate

// --- fast: float in place of a half type ----------------------------------------------------------------------------

namespace fast {

OPSMITH_DEVICE float exp(float x) { return quick_exp2(x * 1.44269504f); }

// Where results below 2^-126 do not count.
OPSMITH_DEVICE float exp_or_zero(float x) { return quick_exp2_or_zero(x * 1.44269504f); }

// For x up to 40. Larger by 2^64 on the way, results below 2^-126 are not lost, and need no test.
OPSMITH_DEVICE float exp_of_negative(float x) {
  return quick_exp2_or_zero(fma(x, 1.44269504f, 64.0f)) * 5.42101086e-20f;
}

// By a sixteenth of 1 + e^-x: the reciprocal of what passes 2^126 would be zero, and bfloat16 goes below 2^-126.
OPSMITH_DEVICE float sigmoid(float x) {
  return 0.0625f * quick_reciprocal(fma(quick_exp2_or_zero(x * -1.44269504f), 0.0625f, 0.0625f));
}

OPSMITH_DEVICE float tanh(float x) {
  // 1 - 2 / (1 + exp(2x)) has no digits left near zero; there the series up to x^5 is right to 2^-20.
  const float far = fma(-2.0f, quick_reciprocal(1.0f + quick_exp2_or_zero(x * 2.88539008f)), 1.0f);
  const float square = x * x;
  const float near = fma(x * square, fma(square, 0.133333333f, -0.333333333f), x);
  return absolute(x) < 0.15f ? near : far;
}

// log(1 + e) / e for 0 <= e <= 1, within 2e-7.
OPSMITH_DEVICE float log1p_ratio(float e) {
  float ratio = -0.00853909645f;
  ratio = fma(ratio, e, 0.0440892391f);
  ratio = fma(ratio, e, -0.10768117f);
  ratio = fma(ratio, e, 0.177452043f);
  ratio = fma(ratio, e, -0.244954497f);
  ratio = fma(ratio, e, 0.332754791f);
  ratio = fma(ratio, e, -0.499974042f);
  return fma(ratio, e, 0.999999821f);
}

OPSMITH_DEVICE float softplus(float x) {
  const float e = exp(-absolute(x));
  return fma(e, log1p_ratio(e), maximum(x, 0.0f));
}

OPSMITH_DEVICE float tanh_softplus(float x) {
  const float e = exp(minimum(x, 20.0f));  // from 20 on the quotient is 1
  const float m = e * (e + 2.0f);
  return m * quick_reciprocal(m + 2.0f);
}

// exp(-x*x/2), shared by the two below.
OPSMITH_DEVICE float bell(float x) { return quick_exp2_or_zero(x * x * -0.721347520f); }

OPSMITH_DEVICE float normal_cdf(float x) {
  // The tail beyond |x| is bell(x) * t * P(t), t = 1 / (1 + 0.365 |x|): relative error 1e-6, also far out.
  const float t = quick_reciprocal(fma(absolute(x), 0.365f, 1.0f));
  float tail = 0.0481845774f;
  tail = fma(tail, t, -0.176751912f);
  tail = fma(tail, t, 0.165482581f);
  tail = fma(tail, t, 0.0351989046f);
  tail = fma(tail, t, 0.137966335f);
  tail = fma(tail, t, 0.144241691f);
  tail = fma(tail, t, 0.145678267f);
  tail *= bell(x) * t;
  return x < 0.0f ? tail : 1.0f - tail;
}

OPSMITH_DEVICE float normal_pdf(float x) { return bell(x) * 0.398942280f; }

}  // namespace fast

#if defined(OPSMITH_FAST_MATH)
#define OPSMITH_ACTIVATION(name)                                \
  OPSMITH_DEVICE float name(float x) { return fast::name(x); }  \
  OPSMITH_DEVICE double name(double x) { return accurate::name(x); }
#else
#define OPSMITH_ACTIVATION(name)                                   \
  OPSMITH_DEVICE float name(float x) { return accurate::name(x); } \
  OPSMITH_DEVICE double name(double x) { return accurate::name(x); }
#endif

OPSMITH_ACTIVATION(exp)
OPSMITH_ACTIVATION(tanh)
OPSMITH_ACTIVATION(sigmoid)
OPSMITH_ACTIVATION(softplus)
OPSMITH_ACTIVATION(tanh_softplus)
OPSMITH_ACTIVATION(normal_cdf)
OPSMITH_ACTIVATION(normal_pdf)

// --- composites, as torch writes them -------------------------------------------------------------------------------

template <class T>
OPSMITH_DEVICE T sinc(T x) {
  const T angle = x * T(3.14159265358979323846);
  return x == T(0) ? T(1) : sin(angle) / angle;
}

template <class T>
OPSMITH_DEVICE T logaddexp(T a, T b) {
  if (is_inf(a) && a == b) return a;
  return maximum(a, b) + log1p(accurate::exp(-absolute(a - b)));
}

template <class T>
OPSMITH_DEVICE T logaddexp2(T a, T b) {
  if (is_inf(a) && a == b) return a;
  return maximum(a, b) + log1p(exp2(-absolute(a - b))) * T(1.44269504088896340736);
}

template <class T>
OPSMITH_DEVICE T xlogy(T x, T y) {
  return x == T(0) && !is_nan(y) ? T(0) : x * log(y);
}

}  // namespace opsmith
