// CUDA's built-in types: vectors of up to four, with the alignment that a GPU wants of them, and dimensions.
#pragma once

#include <stdint.h>
#include <stddef.h>

#define OPSMITH_VECTORS(name, type, two, four)                                                              \
  struct name##1 {                                                                                          \
    type x;                                                                                                 \
  };                                                                                                        \
  struct alignas(two) name##2 {                                                                             \
    type x, y;                                                                                              \
  };                                                                                                        \
  struct name##3 {                                                                                          \
    type x, y, z;                                                                                           \
  };                                                                                                        \
  struct alignas(four) name##4 {                                                                            \
    type x, y, z, w;                                                                                        \
  };                                                                                                        \
  inline name##1 make_##name##1(type x) { return {x}; }                                                     \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                          \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                               \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

OPSMITH_VECTORS(char, signed char, 2, 4)
OPSMITH_VECTORS(uchar, unsigned char, 2, 4)
OPSMITH_VECTORS(short, short, 4, 8)
OPSMITH_VECTORS(ushort, unsigned short, 4, 8)
OPSMITH_VECTORS(int, int, 8, 16)
OPSMITH_VECTORS(uint, unsigned int, 8, 16)
OPSMITH_VECTORS(long, long, 16, 16)
OPSMITH_VECTORS(ulong, unsigned long, 16, 16)
OPSMITH_VECTORS(longlong, long long, 16, 16)
OPSMITH_VECTORS(ulonglong, unsigned long long, 16, 16)
OPSMITH_VECTORS(float, float, 8, 16)
OPSMITH_VECTORS(double, double, 16, 16)
#undef OPSMITH_VECTORS

// Of four that take 32 bytes, CUDA 13 has a type for either alignment.
#define OPSMITH_ALIGNED(name, type, bytes)                                                    \
  struct alignas(bytes) name##4_##bytes##a {                                                  \
    type x, y, z, w;                                                                          \
  };                                                                                          \
  inline name##4_##bytes##a make_##name##4_##bytes##a(type x, type y, type z, type w) { return {x, y, z, w}; }
#define OPSMITH_ALIGNMENTS(name, type) OPSMITH_ALIGNED(name, type, 16) OPSMITH_ALIGNED(name, type, 32)
OPSMITH_ALIGNMENTS(long, long)
OPSMITH_ALIGNMENTS(ulong, unsigned long)
OPSMITH_ALIGNMENTS(longlong, long long)
OPSMITH_ALIGNMENTS(ulonglong, unsigned long long)
OPSMITH_ALIGNMENTS(double, double)
#undef OPSMITH_ALIGNMENTS
#undef OPSMITH_ALIGNED

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 from) : x(from.x), y(from.y), z(from.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

namespace opsmith::emulator {

inline uint3 as_uint3(Dim dim) { return {dim.x, dim.y, dim.z}; }
inline dim3 as_dim3(Dim dim) { return {dim.x, dim.y, dim.z}; }

}  // namespace opsmith::emulator
