// Integers: their bits, products and sums that would not fit, averages, and sums of small products.
#pragma once

#include <stdint.h>
#include <stdlib.h>

// --- Bits ----------------------------------------------------------------------------------------------------------------

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned short __nv_bswap16(unsigned short x) { return __builtin_bswap16(x); }
inline unsigned __nv_bswap32(unsigned x) { return __builtin_bswap32(x); }
inline unsigned long long __nv_bswap64(unsigned long long x) { return __builtin_bswap64(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
  return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 | __brev(static_cast<unsigned>(x >> 32));
}
// The position of the |offset|-th bit that is set, from `base` on upwards or, with a negative offset, downwards.
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
  if (offset == 0) return mask >> (base & 31) & 1 ? base : ~0u;
  const int step = offset > 0 ? 1 : -1;
  for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step) {
    if (mask >> at & 1 && (offset -= step) == 0) return static_cast<unsigned>(at);
  }
  return ~0u;
}
// Of each digit of the selector three bits count: prmt's fourth, which would give a byte's sign, is masked away.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 7;
    result |= (static_cast<unsigned>(bytes >> (8 * choice)) & 0xff) << (8 * i);
  }
  return result;
}

// A shift of 64 bits, of which one half is the result. Of the shift the lower five bits count, with a `c` up to 32.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

// --- Products, differences, averages -------------------------------------------------------------------------------------

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
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }
inline int __rhadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b + 1) >> 1); }
inline unsigned __uhadd(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) + b) >> 1); }
inline unsigned __urhadd(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) + b + 1) >> 1); }

// --- Sums of products of the parts of a word, modulo 2^32 ----------------------------------------------------------------

namespace opsmith::emulator {

// c + the sum of the products of `COUNT` parts of a, of type A, with as many of b from its part `first` on.
template <typename A, typename B, int COUNT>
inline unsigned dot_product(unsigned a, unsigned b, unsigned c, int first) {
  for (int i = 0; i < COUNT; ++i) {
    const auto of_a = static_cast<A>(a >> (8 * sizeof(A) * i));
    const auto of_b = static_cast<B>(b >> (8 * sizeof(B) * (first + i)));
    c += static_cast<unsigned>(static_cast<int>(of_a) * static_cast<int>(of_b));
  }
  return c;
}

}  // namespace opsmith::emulator

#define OPSMITH_DOT_PRODUCT(name, first, count, number, vector_a, vector_b, part_a, part_b)                            \
  inline number name(number a, number b, number c) {                                                                  \
    return static_cast<number>(opsmith::emulator::dot_product<part_a, part_b, count>(                                 \
        static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c), first));                        \
  }                                                                                                                   \
  inline number name(vector_a a, vector_b b, number c) {                                                              \
    return name(__builtin_bit_cast(number, a), __builtin_bit_cast(number, b), c);                                     \
  }
#define OPSMITH_DOT_PRODUCTS(name, first, count, vector_a, part_a, vector_b, part_b)                                  \
  OPSMITH_DOT_PRODUCT(name, first, count, int, vector_a, vector_b, int##part_a##_t, int##part_b##_t)            \
  OPSMITH_DOT_PRODUCT(name, first, count, unsigned, u##vector_a, u##vector_b, uint##part_a##_t, uint##part_b##_t)
OPSMITH_DOT_PRODUCTS(__dp4a, 0, 4, char4, 8, char4, 8)
OPSMITH_DOT_PRODUCTS(__dp2a_lo, 0, 2, short2, 16, char4, 8)
OPSMITH_DOT_PRODUCTS(__dp2a_hi, 2, 2, short2, 16, char4, 8)
#undef OPSMITH_DOT_PRODUCTS
#undef OPSMITH_DOT_PRODUCT
