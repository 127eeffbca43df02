// Division of the elements of a row by one number.
#pragma once

#include <opsmith/pointwise/cuda_math.h>

namespace opsmith {

// A number that many elements are divided by: its reciprocal is computed once. A quotient is rounded correctly, as the
// division operator's, unless it or the dividend is below 2^-100: then the last bit may differ. With OPSMITH_FAST_MATH
// the last two bits may.
class Divisor {
 public:
  OPSMITH_DEVICE explicit Divisor(float number) {
    // Scaled, so that neither the reciprocal nor a quotient leaves float's range before the result does. And positive:
    // what is left of a dividend of zero then has the sign that keeps the sign of the quotient.
    const float size = absolute(number);
    scale_ = size > 18446744073709551616.0f ? 5.42101086e-20f : size < 5.42101086e-20f ? 18446744073709551616.0f : 1.0f;
    if ((bits_as<uint32_t>(number) >> 31) != 0) scale_ = -scale_;
    number_ = number * scale_;
    reciprocal_ = 1.0f / number_;
  }

  OPSMITH_DEVICE float divide(float x) const {
    const float scaled = x * scale_, quotient = scaled * reciprocal_;
#if defined(OPSMITH_FAST_MATH)
    return quotient;
#else
    const float left = -fma(quotient, number_, -scaled);
    return absolute(left) < infinity<float>() ? fma(left, reciprocal_, quotient) : quotient;
#endif
  }

 private:
  float scale_, number_, reciprocal_;
};

}  // namespace opsmith
