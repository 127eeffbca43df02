// From one type of number to another, with the rounding in the name; and the bits of one type taken for another's.
#pragma once

#include <limits.h>
#include <math.h>
#include <stdint.h>

#include "opsmith_cuda_directed.h"

// --- To integers; out of range the nearest, as on a GPU ------------------------------------------------------------------

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

// --- To floating-point numbers -------------------------------------------------------------------------------------------

#define OPSMITH_TO_FLOAT(mode)                                                                                \
  OPSMITH_DIRECTED(__int2float, mode, float, (int x), static_cast<float>(x), x)                               \
  OPSMITH_DIRECTED(__uint2float, mode, float, (unsigned x), static_cast<float>(x), x)                         \
  OPSMITH_DIRECTED(__ll2float, mode, float, (long long x), static_cast<float>(x), x)                          \
  OPSMITH_DIRECTED(__ull2float, mode, float, (unsigned long long x), static_cast<float>(x), x)                \
  OPSMITH_DIRECTED(__ll2double, mode, double, (long long x), static_cast<double>(x), x)                       \
  OPSMITH_DIRECTED(__ull2double, mode, double, (unsigned long long x), static_cast<double>(x), x)             \
  OPSMITH_DIRECTED(__double2float, mode, float, (double x), static_cast<float>(x), x)
OPSMITH_TO_FLOAT(rn)
OPSMITH_TO_FLOAT(rz)
OPSMITH_TO_FLOAT(rd)
OPSMITH_TO_FLOAT(ru)
#undef OPSMITH_TO_FLOAT
#undef OPSMITH_DIRECTED
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

// --- The bits ------------------------------------------------------------------------------------------------------------

#define OPSMITH_BITS(name, from, to)      \
  inline to name(from value) {            \
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
