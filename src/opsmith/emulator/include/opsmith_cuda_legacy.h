// Names that CUDA has kept from its first years: dadd(x, y, cudaRoundZero) is __dadd_rz(x, y).
#pragma once

#include "opsmith_cuda_conversions.h"

enum cudaRoundMode { cudaRoundNearest, cudaRoundZero, cudaRoundPosInf, cudaRoundMinInf };

#define OPSMITH_BY_MODE(function, ...)                      \
  switch (mode) {                                           \
    case cudaRoundZero:                                     \
      return function##_rz(__VA_ARGS__);                    \
    case cudaRoundPosInf:                                   \
      return function##_ru(__VA_ARGS__);                    \
    case cudaRoundMinInf:                                   \
      return function##_rd(__VA_ARGS__);                    \
    default:                                                \
      return function##_rn(__VA_ARGS__);                    \
  }
inline double dadd(double x, double y, cudaRoundMode mode = cudaRoundNearest) { OPSMITH_BY_MODE(__dadd, x, y) }
inline double dsub(double x, double y, cudaRoundMode mode = cudaRoundNearest) { OPSMITH_BY_MODE(__dsub, x, y) }
inline double dmul(double x, double y, cudaRoundMode mode = cudaRoundNearest) { OPSMITH_BY_MODE(__dmul, x, y) }
inline double fma(double x, double y, double z, cudaRoundMode mode) { OPSMITH_BY_MODE(__fma, x, y, z) }
inline int double2int(double x, cudaRoundMode mode = cudaRoundZero) { OPSMITH_BY_MODE(__double2int, x) }
inline unsigned double2uint(double x, cudaRoundMode mode = cudaRoundZero) { OPSMITH_BY_MODE(__double2uint, x) }
inline long long double2ll(double x, cudaRoundMode mode = cudaRoundZero) { OPSMITH_BY_MODE(__double2ll, x) }
inline unsigned long long double2ull(double x, cudaRoundMode mode = cudaRoundZero) { OPSMITH_BY_MODE(__double2ull, x) }
inline double ll2double(long long x, cudaRoundMode mode = cudaRoundNearest) { OPSMITH_BY_MODE(__ll2double, x) }
inline double ull2double(unsigned long long x, cudaRoundMode mode = cudaRoundNearest) { OPSMITH_BY_MODE(__ull2double, x) }
#undef OPSMITH_BY_MODE
// Exact, whatever the mode.
inline double int2double(int x, cudaRoundMode = cudaRoundNearest) { return x; }
inline double uint2double(unsigned x, cudaRoundMode = cudaRoundNearest) { return x; }
inline double float2double(float x, cudaRoundMode = cudaRoundNearest) { return x; }

inline double fdivide(double x, double y) { return x / y; }
inline float fdividef(float x, float y) { return x / y; }

__forceinline__ bool syncthreads_and(bool predicate, int line = __builtin_LINE()) {
  return __syncthreads_and(predicate, line) != 0;
}
__forceinline__ bool syncthreads_or(bool predicate, int line = __builtin_LINE()) {
  return __syncthreads_or(predicate, line) != 0;
}
__forceinline__ int syncthreads_count(bool predicate, int line = __builtin_LINE()) {
  return __syncthreads_count(predicate, line);
}
