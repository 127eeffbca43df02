// CUDA's mathematical functions. Those of C are the C library's, to a few units in the last place of what a GPU gives; fast
// ones are computed as exactly as the others.
#pragma once

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "opsmith_cuda_special.h"

// <math.h> gives every function of C for float and for double under one name.

// --- Functions that C does not have, or not for float ------------------------------------------------------------------

inline float exp10(float x) { return exp10f(x); }
inline float rsqrtf(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return static_cast<double>(1.0L / sqrtl(static_cast<long double>(x))); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return static_cast<float>(1.0 / cbrt(static_cast<double>(x))); }
inline double rcbrt(double x) { return static_cast<double>(1.0L / cbrtl(static_cast<long double>(x))); }
inline float rcbrt(float x) { return rcbrtf(x); }
inline float j0(float x) { return j0f(x); }
inline float j1(float x) { return j1f(x); }
inline float jn(int n, float x) { return jnf(n, x); }
inline float y0(float x) { return y0f(x); }
inline float y1(float x) { return y1f(x); }
inline float yn(int n, float x) { return ynf(n, x); }
inline double copysign(double x, float y) { return copysign(x, static_cast<double>(y)); }
inline double copysign(float x, double y) { return copysign(static_cast<double>(x), y); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
// They replace the C library's, whose stores would not be checked.
#define OPSMITH_STORING(result, name, ...) \
  extern "C" __attribute__((gnu_inline, always_inline)) inline result name(__VA_ARGS__) noexcept
#define OPSMITH_STORING_FUNCTIONS(type, ending)                                              \
  OPSMITH_STORING(void, sincos##ending, type x, type* sine, type* cosine) {                  \
    *sine = __builtin_sin##ending(x);                                                        \
    *cosine = __builtin_cos##ending(x);                                                      \
  }                                                                                          \
  OPSMITH_STORING(type, frexp##ending, type x, int* exponent) {                              \
    int found;                                                                               \
    const type fraction = __builtin_frexp##ending(x, &found);                                \
    *exponent = found;                                                                       \
    return fraction;                                                                         \
  }                                                                                          \
  OPSMITH_STORING(type, modf##ending, type x, type* whole) {                                 \
    type found;                                                                              \
    const type fraction = __builtin_modf##ending(x, &found);                                 \
    *whole = found;                                                                          \
    return fraction;                                                                         \
  }                                                                                          \
  OPSMITH_STORING(type, remquo##ending, type x, type y, int* quotient) {                     \
    int found;                                                                               \
    const type rest = __builtin_remquo##ending(x, y, &found);                                \
    *quotient = found;                                                                       \
    return rest;                                                                             \
  }
OPSMITH_STORING_FUNCTIONS(double, )
OPSMITH_STORING_FUNCTIONS(float, f)
#undef OPSMITH_STORING_FUNCTIONS
#undef OPSMITH_STORING
__forceinline__ void sincos(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }

// --- The least and the greatest ----------------------------------------------------------------------------------------

// CUDA's overloads, no more: what is ambiguous to nvcc, as min(1, 2LL) is, is ambiguous here.
#define OPSMITH_MIN_MAX(result, type_a, type_b)                                                      \
  inline result min(type_a a, type_b b) { return result(b) < result(a) ? result(b) : result(a); }    \
  inline result max(type_a a, type_b b) { return result(a) < result(b) ? result(b) : result(a); }
#define OPSMITH_MIN_MAX_OF(type, unsigned_type)            \
  OPSMITH_MIN_MAX(type, type, type)                        \
  OPSMITH_MIN_MAX(unsigned_type, unsigned_type, unsigned_type) \
  OPSMITH_MIN_MAX(unsigned_type, type, unsigned_type)      \
  OPSMITH_MIN_MAX(unsigned_type, unsigned_type, type)
namespace opsmith::emulator {
using ulong = unsigned long;
using longlong = long long;
using ulonglong = unsigned long long;
}  // namespace opsmith::emulator
OPSMITH_MIN_MAX_OF(int, unsigned)
OPSMITH_MIN_MAX_OF(long, opsmith::emulator::ulong)
OPSMITH_MIN_MAX_OF(opsmith::emulator::longlong, opsmith::emulator::ulonglong)
#undef OPSMITH_MIN_MAX_OF
#undef OPSMITH_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

// --- Fast forms --------------------------------------------------------------------------------------------------------

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
__forceinline__ void __sincosf(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }
inline float __fdividef(float x, float y) { return fabsf(y) > 8.507059e37f ? (isinf(x) ? NAN : 0.0f * x) : x / y; }
