// The GPU's own exp2 and reciprocal, an instruction each; off a GPU the accurate functions.
#pragma once

#include <opsmith/pointwise/cuda_math.h>

namespace opsmith {

// 2^x within 2 units in the last place.
OPSMITH_DEVICE float quick_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float power;
  asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return OPSMITH_LIBM(exp2f)(x);
#endif
}

// The same where results below 2^-126 may as well be zero: one instruction instead of four.
OPSMITH_DEVICE float quick_exp2_or_zero(float x) {
#if defined(__CUDA_ARCH__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return OPSMITH_LIBM(exp2f)(x);
#endif
}

// 1/x within 1 unit in the last place, for 2^-126 <= |x| <= 2^126; zero beyond.
OPSMITH_DEVICE float quick_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float quotient;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(quotient) : "f"(x));
  return quotient;
#else
  return 1.0f / x;
#endif
}

}  // namespace opsmith
