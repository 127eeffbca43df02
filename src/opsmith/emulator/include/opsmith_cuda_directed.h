// Arithmetic with the rounding in its name, __fadd_rz and the like: rounded once, by the processor, in that mode.
#pragma once

#include <fenv.h>
#include <math.h>

namespace opsmith::emulator {

// The endings of CUDA's names: _rn to the nearest (a tie goes to the even one), _rz towards zero, _rd down, _ru up.
enum class Rounding { rn, rz, rd, ru };

constexpr int mode_of(Rounding rounding) {
  return rounding == Rounding::rn   ? FE_TONEAREST
         : rounding == Rounding::rz ? FE_TOWARDZERO
         : rounding == Rounding::rd ? FE_DOWNWARD
                                    : FE_UPWARD;
}

// A value of which the compiler knows nothing: what is computed from it is computed after this, with the processor.
template <typename Value>
__forceinline__ Value opaque(Value value) {
  asm volatile("" : "+m"(value));
  return value;
}

// function(values...) in a rounding mode. The mode belongs to the machine's thread; no fiber yields in here.
template <Rounding ROUNDING, typename Function, typename... Values>
inline auto directed(Function function, Values... values) {
  if constexpr (ROUNDING == Rounding::rn) {
    return function(values...);
  } else {
    const int before = fegetround();
    fesetround(mode_of(ROUNDING));
    const auto result = opaque(function(opaque(values)...));
    fesetround(before);
    return result;
  }
}

}  // namespace opsmith::emulator

#define OPSMITH_DIRECTED(name, mode, result, parameters, expression, ...)                 \
  inline result name##_##mode parameters {                                                \
    return opsmith::emulator::directed<opsmith::emulator::Rounding::mode>(                \
        [] parameters -> result { return expression; }, __VA_ARGS__);                     \
  }
#define OPSMITH_DIRECTED_OPERATIONS(mode)                                                                       \
  OPSMITH_DIRECTED(__fadd, mode, float, (float x, float y), x + y, x, y)                                        \
  OPSMITH_DIRECTED(__fsub, mode, float, (float x, float y), x - y, x, y)                                        \
  OPSMITH_DIRECTED(__fmul, mode, float, (float x, float y), x * y, x, y)                                        \
  OPSMITH_DIRECTED(__fdiv, mode, float, (float x, float y), x / y, x, y)                                        \
  OPSMITH_DIRECTED(__fmaf, mode, float, (float x, float y, float z), fmaf(x, y, z), x, y, z)                    \
  OPSMITH_DIRECTED(__fmaf_ieee, mode, float, (float x, float y, float z), fmaf(x, y, z), x, y, z)               \
  OPSMITH_DIRECTED(__frcp, mode, float, (float x), 1.0f / x, x)                                                 \
  OPSMITH_DIRECTED(__fsqrt, mode, float, (float x), sqrtf(x), x)                                                \
  OPSMITH_DIRECTED(__dadd, mode, double, (double x, double y), x + y, x, y)                                     \
  OPSMITH_DIRECTED(__dsub, mode, double, (double x, double y), x - y, x, y)                                     \
  OPSMITH_DIRECTED(__dmul, mode, double, (double x, double y), x * y, x, y)                                     \
  OPSMITH_DIRECTED(__ddiv, mode, double, (double x, double y), x / y, x, y)                                     \
  OPSMITH_DIRECTED(__fma, mode, double, (double x, double y, double z), fma(x, y, z), x, y, z)                  \
  OPSMITH_DIRECTED(__drcp, mode, double, (double x), 1.0 / x, x)                                                \
  OPSMITH_DIRECTED(__dsqrt, mode, double, (double x), sqrt(x), x)                                               \
  inline float2 __fadd2_##mode(float2 x, float2 y) { return {__fadd_##mode(x.x, y.x), __fadd_##mode(x.y, y.y)}; } \
  inline float2 __fmul2_##mode(float2 x, float2 y) { return {__fmul_##mode(x.x, y.x), __fmul_##mode(x.y, y.y)}; } \
  inline float2 __ffma2_##mode(float2 x, float2 y, float2 z) {                                                  \
    return {__fmaf_##mode(x.x, y.x, z.x), __fmaf_##mode(x.y, y.y, z.y)};                                        \
  }
OPSMITH_DIRECTED_OPERATIONS(rn)
OPSMITH_DIRECTED_OPERATIONS(rz)
OPSMITH_DIRECTED_OPERATIONS(rd)
OPSMITH_DIRECTED_OPERATIONS(ru)
#undef OPSMITH_DIRECTED_OPERATIONS

// Rounded twice, first to so many bits that the second time is right: all floats have been tried.
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
