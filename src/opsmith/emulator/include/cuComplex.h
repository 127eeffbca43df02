// CUDA's complex numbers for C: a float2 or a double2, and functions of them.
#pragma once

#include "opsmith_cuda.h"

using cuFloatComplex = float2;
using cuDoubleComplex = double2;
using cuComplex = cuFloatComplex;

#define OPSMITH_COMPLEX(type, real, ending)                                                                              \
  inline real cuCreal##ending(type a) { return a.x; }                                                                    \
  inline real cuCimag##ending(type a) { return a.y; }                                                                    \
  inline type make_##type(real x, real y) { return {x, y}; }                                                             \
  inline type cuConj##ending(type a) { return {a.x, -a.y}; }                                                             \
  inline type cuCadd##ending(type a, type b) { return {a.x + b.x, a.y + b.y}; }                                          \
  inline type cuCsub##ending(type a, type b) { return {a.x - b.x, a.y - b.y}; }                                          \
  inline type cuCmul##ending(type a, type b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }                  \
  inline type cuCfma##ending(type a, type b, type c) {                                                                   \
    return {a.x * b.x + c.x - a.y * b.y, a.y * b.x + (a.x * b.y + c.y)};                                                 \
  }                                                                                                                      \
  /* Both are divided by the size of b first, so that its square neither overflows nor vanishes. */                      \
  inline type cuCdiv##ending(type a, type b) {                                                                           \
    const real inverse = 1 / (fabs##ending(b.x) + fabs##ending(b.y));                                                    \
    const type c = {a.x * inverse, a.y * inverse}, d = {b.x * inverse, b.y * inverse};                                   \
    const real factor = 1 / (d.x * d.x + d.y * d.y);                                                                     \
    return {(c.x * d.x + c.y * d.y) * factor, (c.y * d.x - c.x * d.y) * factor};                                         \
  }                                                                                                                      \
  inline real cuCabs##ending(type a) { return hypot##ending(a.x, a.y); }
OPSMITH_COMPLEX(cuFloatComplex, float, f)
OPSMITH_COMPLEX(cuDoubleComplex, double, )
#undef OPSMITH_COMPLEX
inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return {a.x, a.y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) {
  return {static_cast<float>(a.x), static_cast<float>(a.y)};
}
