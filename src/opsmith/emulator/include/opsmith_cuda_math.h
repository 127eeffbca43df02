// CUDA's mathematical functions and intrinsics. Those of C are the C library's, to a unit in the last place of what a GPU
// gives; fast ones are computed as exactly as the others.
#pragma once

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// <math.h> gives every function of C for float and for double under one name.

// --- Functions that C does not have ----------------------------------------------------------------------------------

inline float exp10(float x) { return exp10f(x); }
inline float rsqrtf(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return static_cast<float>(1.0 / cbrt(static_cast<double>(x))); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline void sincos(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = static_cast<float>(sin(M_PI * static_cast<double>(x)));
  *cosine = static_cast<float>(cos(M_PI * static_cast<double>(x)));
}
inline float sinpif(float x) { return static_cast<float>(sin(M_PI * fmod(static_cast<double>(x), 2.0))); }
inline float cospif(float x) { return static_cast<float>(cos(M_PI * fmod(static_cast<double>(x), 2.0))); }
inline double sinpi(double x) { return sin(M_PI * fmod(x, 2.0)); }
inline double cospi(double x) { return cos(M_PI * fmod(x, 2.0)); }
inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
inline float normcdff(float x) { return static_cast<float>(normcdf(static_cast<double>(x))); }
inline double erfcx(double x) { return x < 25 ? exp(x * x) * erfc(x) : M_2_SQRTPI / (2 * x); }
inline float erfcxf(float x) { return static_cast<float>(erfcx(static_cast<double>(x))); }
inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
inline float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float fdividef(float x, float y) { return x / y; }

template <typename Value>
inline Value opsmith_least(Value a, Value b) {
  return b < a ? b : a;
}
template <typename Value>
inline Value opsmith_greatest(Value a, Value b) {
  return a < b ? b : a;
}
#define OPSMITH_MIN_MAX(type)                                                \
  inline type min(type a, type b) { return opsmith_least<type>(a, b); }       \
  inline type max(type a, type b) { return opsmith_greatest<type>(a, b); }
OPSMITH_MIN_MAX(int)
OPSMITH_MIN_MAX(unsigned)
OPSMITH_MIN_MAX(long)
OPSMITH_MIN_MAX(unsigned long)
OPSMITH_MIN_MAX(long long)
OPSMITH_MIN_MAX(unsigned long long)
#undef OPSMITH_MIN_MAX
inline unsigned min(int a, unsigned b) { return min(static_cast<unsigned>(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, static_cast<unsigned>(b)); }
inline unsigned max(int a, unsigned b) { return max(static_cast<unsigned>(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, static_cast<unsigned>(b)); }
inline long long min(int a, long long b) { return min(static_cast<long long>(a), b); }
inline long long min(long long a, int b) { return min(a, static_cast<long long>(b)); }
inline long long max(int a, long long b) { return max(static_cast<long long>(a), b); }
inline long long max(long long a, int b) { return max(a, static_cast<long long>(b)); }
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

// --- Fast forms, and forms with the rounding in their name ------------------------------------------------------------

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline void __sincosf(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }
inline float __fdividef(float x, float y) { return fabsf(y) > 8.507059e37f ? (isinf(x) ? NAN : 0.0f * x) : x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

// --- Conversions; out of range and NaN as on a GPU: the nearest value, and 0 -------------------------------------------

namespace opsmith::emulator {

template <typename Integer, typename Float>
inline Integer saturated(Float x) {
  constexpr bool is_signed = Integer(-1) < Integer(0);
  constexpr int bits = sizeof(Integer) * CHAR_BIT - is_signed;
  // PTX: 0, but from a double or to 64 bits the upper bit alone.
  if (isnan(x)) return sizeof(Float) == 8 || sizeof(Integer) == 8 ? static_cast<Integer>(1ull << (sizeof(Integer) * CHAR_BIT - 1)) : 0;
  const Float limit = static_cast<Float>(1ull << (bits - 1)) * 2;
  if (x >= limit) return static_cast<Integer>(~(is_signed ? 1ull << bits : 0ull));
  if (is_signed ? x < -limit : x <= -1) return is_signed ? static_cast<Integer>(1ull << bits) : 0;
  return static_cast<Integer>(x);
}

}  // namespace opsmith::emulator

#define OPSMITH_TO_INTEGER(float_name, float_type, name, type)                                                     \
  inline type __##float_name##2##name##_rn(float_type x) { return opsmith::emulator::saturated<type>(rint(x)); }   \
  inline type __##float_name##2##name##_rz(float_type x) { return opsmith::emulator::saturated<type>(trunc(x)); }  \
  inline type __##float_name##2##name##_rd(float_type x) { return opsmith::emulator::saturated<type>(floor(x)); }  \
  inline type __##float_name##2##name##_ru(float_type x) { return opsmith::emulator::saturated<type>(ceil(x)); }
OPSMITH_TO_INTEGER(float, float, int, int)
OPSMITH_TO_INTEGER(float, float, uint, unsigned)
OPSMITH_TO_INTEGER(float, float, ll, long long)
OPSMITH_TO_INTEGER(float, float, ull, unsigned long long)
OPSMITH_TO_INTEGER(double, double, int, int)
OPSMITH_TO_INTEGER(double, double, uint, unsigned)
OPSMITH_TO_INTEGER(double, double, ll, long long)
OPSMITH_TO_INTEGER(double, double, ull, unsigned long long)
#undef OPSMITH_TO_INTEGER
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

#define OPSMITH_BITS(name, from, to)     \
  inline to name(from value) {           \
    return __builtin_bit_cast(to, value); \
  }
OPSMITH_BITS(__float_as_int, float, int)
OPSMITH_BITS(__float_as_uint, float, unsigned)
OPSMITH_BITS(__int_as_float, int, float)
OPSMITH_BITS(__uint_as_float, unsigned, float)
OPSMITH_BITS(__double_as_longlong, double, long long)
OPSMITH_BITS(__longlong_as_double, long long, double)
#undef OPSMITH_BITS
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double(static_cast<long long>(static_cast<uint64_t>(static_cast<unsigned>(high)) << 32 |
                                                     static_cast<unsigned>(low)));
}

// --- Integers --------------------------------------------------------------------------------------------------------

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
  return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 | __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 0xf;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7))) & 0xff;
    if (choice & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return static_cast<long long>(static_cast<__int128>(a) * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) {
  return static_cast<int>(static_cast<long long>(a << 8 >> 8) * (b << 8 >> 8));
}
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline unsigned __sad(int a, int b, unsigned c) { return c + static_cast<unsigned>(llabs(static_cast<long long>(a) - b)); }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }
inline int __dp4a(int a, int b, int c) {
  unsigned sum = static_cast<unsigned>(c);
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<unsigned>(static_cast<int>(static_cast<int8_t>(a >> (8 * i))) * static_cast<int8_t>(b >> (8 * i)));
  }
  return static_cast<int>(sum);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 0xff) * (b >> (8 * i) & 0xff);
  return c;
}
