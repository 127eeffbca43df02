// Arithmetic, comparisons, mathematical functions and atomic sums of a 16-bit floating-point type. Included once for each.
//
// Two such numbers are added, multiplied or divided as floats and rounded: a float has more than twice the bits and two
// to spare, so that rounding twice is rounding once. Mathematical functions are computed as doubles.

// --- Arithmetic ----------------------------------------------------------------------------------------------------------

namespace opsmith::emulator {

inline OPSMITH_HALF sum(OPSMITH_HALF a, OPSMITH_HALF b) { return OPSMITH_ROUNDED(number(a) + number(b)); }
inline OPSMITH_HALF difference(OPSMITH_HALF a, OPSMITH_HALF b) { return OPSMITH_ROUNDED(number(a) - number(b)); }
inline OPSMITH_HALF product(OPSMITH_HALF a, OPSMITH_HALF b) { return OPSMITH_ROUNDED(number(a) * number(b)); }
inline OPSMITH_HALF multiplied_and_added(OPSMITH_HALF a, OPSMITH_HALF b, OPSMITH_HALF c) {
  return OPSMITH_OF_BITS(fused<OPSMITH_FORMAT>(number(a), number(b), number(c)));
}

// Within 0 and 1, and 0 for NaN.
inline OPSMITH_HALF between_0_and_1(OPSMITH_HALF a) {
  const float x = number(a);
  return x > 0.0f ? (x < 1.0f ? a : OPSMITH_ROUNDED(1.0f)) : OPSMITH_OF_BITS(0);
}

inline OPSMITH_HALF at_least_0(OPSMITH_HALF a) { return number(a) <= 0.0f ? OPSMITH_OF_BITS(0) : a; }

}  // namespace opsmith::emulator

#define OPSMITH_BINARY(name, name2, expression)                                                      \
  inline OPSMITH_HALF name(OPSMITH_HALF a, OPSMITH_HALF b) { return expression; }                    \
  inline OPSMITH_HALF2 name2(OPSMITH_HALF2 a, OPSMITH_HALF2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }
#define OPSMITH_SUM_LIKE(name, operation)                                                                 \
  OPSMITH_BINARY(__h##name, __h##name##2, opsmith::emulator::operation(a, b))                             \
  OPSMITH_BINARY(__h##name##_rn, __h##name##2_rn, opsmith::emulator::operation(a, b))                     \
  OPSMITH_BINARY(                                                                                         \
      __h##name##_sat, __h##name##2_sat,                                                                  \
      opsmith::emulator::between_0_and_1(opsmith::emulator::operation(a, b)))
OPSMITH_SUM_LIKE(add, sum)
OPSMITH_SUM_LIKE(sub, difference)
OPSMITH_SUM_LIKE(mul, product)
#undef OPSMITH_SUM_LIKE
OPSMITH_BINARY(__hdiv, __h2div, OPSMITH_ROUNDED(opsmith::emulator::number(a) / opsmith::emulator::number(b)))

#define OPSMITH_FUSED(ending, limit)                                                                        \
  inline OPSMITH_HALF __hfma##ending(OPSMITH_HALF a, OPSMITH_HALF b, OPSMITH_HALF c) {                      \
    return limit(opsmith::emulator::multiplied_and_added(a, b, c));                                         \
  }                                                                                                         \
  inline OPSMITH_HALF2 __hfma2##ending(OPSMITH_HALF2 a, OPSMITH_HALF2 b, OPSMITH_HALF2 c) {                 \
    return {__hfma##ending(a.x, b.x, c.x), __hfma##ending(a.y, b.y, c.y)};                                  \
  }
OPSMITH_FUSED(, )
OPSMITH_FUSED(_sat, opsmith::emulator::between_0_and_1)
OPSMITH_FUSED(_relu, opsmith::emulator::at_least_0)
#undef OPSMITH_FUSED

inline OPSMITH_HALF __hneg(OPSMITH_HALF a) { return OPSMITH_OF_BITS(opsmith::emulator::bits_of(a) ^ 0x8000); }
inline OPSMITH_HALF __habs(OPSMITH_HALF a) { return OPSMITH_OF_BITS(opsmith::emulator::bits_of(a) & 0x7fff); }
inline OPSMITH_HALF2 __hneg2(OPSMITH_HALF2 a) { return {__hneg(a.x), __hneg(a.y)}; }
inline OPSMITH_HALF2 __habs2(OPSMITH_HALF2 a) { return {__habs(a.x), __habs(a.y)}; }

// a * b + c of complex numbers.
inline OPSMITH_HALF2 __hcmadd(OPSMITH_HALF2 a, OPSMITH_HALF2 b, OPSMITH_HALF2 c) {
  return {__hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};
}

// --- Comparisons ---------------------------------------------------------------------------------------------------------

inline bool __hisnan(OPSMITH_HALF a) { return opsmith::emulator::number(a) != opsmith::emulator::number(a); }
inline int __hisinf(OPSMITH_HALF a) {
  const float x = opsmith::emulator::number(a);
  return (x > FLT_MAX) - (x < -FLT_MAX);
}
inline OPSMITH_HALF2 __hisnan2(OPSMITH_HALF2 a) {
  return {OPSMITH_ROUNDED(float(__hisnan(a.x))), OPSMITH_ROUNDED(float(__hisnan(a.y)))};
}

// Of one number; of both of a pair, as 1 and 0, as masks, and whether both hold.
#define OPSMITH_COMPARE(name, expression)                                                                            \
  inline bool __h##name(OPSMITH_HALF a, OPSMITH_HALF b) {                                                            \
    const float x = opsmith::emulator::number(a), y = opsmith::emulator::number(b);                                  \
    return expression;                                                                                               \
  }                                                                                                                  \
  inline OPSMITH_HALF2 __h##name##2(OPSMITH_HALF2 a, OPSMITH_HALF2 b) {                                              \
    return {OPSMITH_ROUNDED(float(__h##name(a.x, b.x))), OPSMITH_ROUNDED(float(__h##name(a.y, b.y)))};               \
  }                                                                                                                  \
  inline unsigned __h##name##2_mask(OPSMITH_HALF2 a, OPSMITH_HALF2 b) {                                              \
    return (__h##name(a.x, b.x) ? 0xffffu : 0u) | (__h##name(a.y, b.y) ? 0xffff0000u : 0u);                          \
  }                                                                                                                  \
  inline bool __hb##name##2(OPSMITH_HALF2 a, OPSMITH_HALF2 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }
OPSMITH_COMPARE(eq, x == y)
OPSMITH_COMPARE(ne, x < y || x > y)
OPSMITH_COMPARE(lt, x < y)
OPSMITH_COMPARE(le, x <= y)
OPSMITH_COMPARE(gt, x > y)
OPSMITH_COMPARE(ge, x >= y)
// With a `u` they hold for NaN.
OPSMITH_COMPARE(equ, !(x < y || x > y))
OPSMITH_COMPARE(neu, x != y)
OPSMITH_COMPARE(ltu, !(x >= y))
OPSMITH_COMPARE(leu, !(x > y))
OPSMITH_COMPARE(gtu, !(x <= y))
OPSMITH_COMPARE(geu, !(x < y))
#undef OPSMITH_COMPARE

namespace opsmith::emulator {

// -0 comes before +0.
inline bool comes_before(OPSMITH_HALF a, OPSMITH_HALF b) {
  return number(a) < number(b) || (number(a) == number(b) && bits_of(a) > bits_of(b));
}

}  // namespace opsmith::emulator

// If one argument is NaN, the result is the other one; with `_nan` it is NaN.
#define OPSMITH_CHOICE(name, chosen)                                                                        \
  OPSMITH_BINARY(                                                                                           \
      __h##name##_nan, __h##name##2_nan,                                                                    \
      __hisnan(a) || __hisnan(b) ? OPSMITH_OF_BITS(opsmith::emulator::kNaN16) : (chosen))                   \
  OPSMITH_BINARY(                                                                                           \
      __h##name, __h##name##2,                                                                              \
      __hisnan(a) == __hisnan(b) ? __h##name##_nan(a, b) : (__hisnan(a) ? b : a))
OPSMITH_CHOICE(min, opsmith::emulator::comes_before(b, a) ? b : a)
OPSMITH_CHOICE(max, opsmith::emulator::comes_before(a, b) ? b : a)
#undef OPSMITH_CHOICE
#undef OPSMITH_BINARY

// --- Mathematical functions ----------------------------------------------------------------------------------------------

#define OPSMITH_FUNCTION(name, expression)                                           \
  inline OPSMITH_HALF h##name(OPSMITH_HALF a) {                                      \
    const double x = static_cast<double>(opsmith::emulator::number(a));              \
    return OPSMITH_ROUNDED(static_cast<double>(expression));                         \
  }                                                                                  \
  inline OPSMITH_HALF2 h2##name(OPSMITH_HALF2 a) { return {h##name(a.x), h##name(a.y)}; }
OPSMITH_FUNCTION(exp, exp(x))
OPSMITH_FUNCTION(exp2, exp2(x))
OPSMITH_FUNCTION(exp10, exp10(x))
OPSMITH_FUNCTION(log, log(x))
OPSMITH_FUNCTION(log2, log2(x))
OPSMITH_FUNCTION(log10, log10(x))
OPSMITH_FUNCTION(sqrt, sqrt(x))
OPSMITH_FUNCTION(rsqrt, 1.0 / sqrt(x))
OPSMITH_FUNCTION(rcp, 1.0 / x)
OPSMITH_FUNCTION(sin, sin(x))
OPSMITH_FUNCTION(cos, cos(x))
OPSMITH_FUNCTION(tanh, tanh(x))
OPSMITH_FUNCTION(tanh_approx, tanh(x))
OPSMITH_FUNCTION(floor, floor(x))
OPSMITH_FUNCTION(ceil, ceil(x))
OPSMITH_FUNCTION(rint, rint(x))
OPSMITH_FUNCTION(trunc, trunc(x))
#undef OPSMITH_FUNCTION

// --- Atomic sums ---------------------------------------------------------------------------------------------------------

__forceinline__ OPSMITH_HALF atomicAdd(OPSMITH_HALF* address, OPSMITH_HALF value) {
  return opsmith::emulator::atomically(address, [value](OPSMITH_HALF old) { return __hadd(old, value); });
}
__forceinline__ OPSMITH_HALF2 atomicAdd(OPSMITH_HALF2* address, OPSMITH_HALF2 value) {
  return opsmith::emulator::atomically(address, [value](OPSMITH_HALF2 old) { return __hadd2(old, value); });
}
