// Vectors of elements for pointwise kernels on the CPU: types, conversions, memory, comparisons.
//
// A kernel computes OPSMITH_LANES elements at a time in GCC's and clang's vector extension; arithmetic and bit
// operators are the language's own. Every function here and in cpu_math.h also takes plain numbers, for what depends on
// arguments alone. No other header is included, so that a kernel parses in milliseconds.
#pragma once

#include <stdint.h>

#ifndef OPSMITH_LANES
#error "OPSMITH_LANES, the elements of one vector, is defined by the text of a kernel before it includes this header"
#endif

#define OPSMITH_INLINE inline __attribute__((always_inline))

namespace opsmith {

constexpr int LANES = OPSMITH_LANES;

template <typename T>
struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * LANES)));
};
template <typename T>
using Vec = typename VectorOf<T>::type;

// A vector of bools: lanes of 0 or -1, as comparisons give them.
struct Mask {
  Vec<int32_t> lanes;
};

struct float16 {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};

// ---- What a type is: its element, and the type of a comparison's result.

template <typename V>
struct Kind {
  static constexpr bool vector = false;
  using element = V;
  using truth = bool;
};
#define OPSMITH_VECTOR(T)                \
  template <>                            \
  struct Kind<Vec<T>> {                  \
    static constexpr bool vector = true; \
    using element = T;                   \
    using truth = Mask;                  \
  };
OPSMITH_VECTOR(float)
OPSMITH_VECTOR(double)
OPSMITH_VECTOR(int8_t)
OPSMITH_VECTOR(uint8_t)
OPSMITH_VECTOR(int16_t)
OPSMITH_VECTOR(int32_t)
OPSMITH_VECTOR(int64_t)
#undef OPSMITH_VECTOR

template <typename V>
using Element = typename Kind<V>::element;
template <typename V>
using Truth = typename Kind<V>::truth;
template <typename V>
constexpr bool is_vector = Kind<V>::vector;
template <typename T>
constexpr bool is_float = false;
template <>
constexpr bool is_float<float> = true;
template <>
constexpr bool is_float<double> = true;

// The integers that a comparison of two vectors gives, and that hold a float's bits.
template <typename V>
using Bits = decltype(V{} < V{});

OPSMITH_INLINE Mask mask(Mask condition) { return condition; }
template <typename I>
OPSMITH_INLINE Mask mask(I lanes) {
  return {__builtin_convertvector(lanes, Vec<int32_t>)};
}

// ---- One number for every lane.

template <typename T>
OPSMITH_INLINE Vec<T> broadcast(T value) {
  return value - Vec<T>{};  // minus zero keeps the sign of zero
}
OPSMITH_INLINE Mask broadcast(bool value) { return {broadcast(int32_t(-int32_t(value)))}; }
OPSMITH_INLINE Vec<int64_t> broadcast(long long value) { return broadcast(int64_t(value)); }

// A constant of the type of a kernel's values, vector or number.
template <typename V>
OPSMITH_INLINE V constant(double value) {
  if constexpr (is_vector<V>) {
    return broadcast(Element<V>(value));
  } else {
    return V(value);
  }
}

template <typename T>
constexpr T infinity() {
  return T(__builtin_inff());
}
template <typename T>
constexpr T not_a_number() {
  return T(__builtin_nanf(""));
}

// f of each lane: what the compiler has an instruction for becomes that, anything else a loop.
template <typename V, typename F>
OPSMITH_INLINE V each_lane(V x, F f) {
  V result;
  for (int lane = 0; lane < LANES; ++lane) result[lane] = f(x[lane]);
  return result;
}
template <typename V, typename F>
OPSMITH_INLINE V each_lane(V x, V y, F f) {
  V result;
  for (int lane = 0; lane < LANES; ++lane) result[lane] = f(x[lane], y[lane]);
  return result;
}

// ---- Comparisons and bools.

#define OPSMITH_COMPARE(name, op, mask_expression)                         \
  template <typename A, typename B>                                        \
  OPSMITH_INLINE Truth<A> name(A a, B b) {                                 \
    if constexpr (is_vector<A>) {                                          \
      return mask(a op b);                                                 \
    } else {                                                               \
      return a op b;                                                       \
    }                                                                      \
  }                                                                        \
  OPSMITH_INLINE Mask name(Mask a, Mask b) { return {(mask_expression)}; }
// True is -1 in a lane: the order of masks is turned round.
OPSMITH_COMPARE(less, <, b.lanes < a.lanes)
OPSMITH_COMPARE(less_equal, <=, b.lanes <= a.lanes)
OPSMITH_COMPARE(greater, >, b.lanes > a.lanes)
OPSMITH_COMPARE(greater_equal, >=, b.lanes >= a.lanes)
OPSMITH_COMPARE(equal, ==, a.lanes == b.lanes)
OPSMITH_COMPARE(not_equal, !=, a.lanes != b.lanes)
#undef OPSMITH_COMPARE

OPSMITH_INLINE Mask operator&(Mask a, Mask b) { return {a.lanes & b.lanes}; }
OPSMITH_INLINE Mask operator|(Mask a, Mask b) { return {a.lanes | b.lanes}; }
OPSMITH_INLINE Mask operator^(Mask a, Mask b) { return {a.lanes ^ b.lanes}; }
OPSMITH_INLINE Mask operator~(Mask a) { return {~a.lanes}; }

template <typename M>
OPSMITH_INLINE M logical_and(M a, M b) {
  return a & b;
}
template <typename M>
OPSMITH_INLINE M logical_or(M a, M b) {
  return a | b;
}
template <typename M>
OPSMITH_INLINE M logical_xor(M a, M b) {
  return a ^ b;
}
OPSMITH_INLINE Mask logical_not(Mask a) { return ~a; }
OPSMITH_INLINE bool logical_not(bool a) { return !a; }

OPSMITH_INLINE bool any(bool a) { return a; }
OPSMITH_INLINE bool any(Mask a) {
  int32_t lanes = 0;
  for (int lane = 0; lane < LANES; ++lane) lanes |= a.lanes[lane];
  return lanes != 0;
}

template <typename V>
OPSMITH_INLINE V select(Mask condition, V a, V b) {
  return __builtin_convertvector(condition.lanes, Bits<V>) ? a : b;
}
OPSMITH_INLINE Mask select(Mask condition, Mask a, Mask b) {
  return {(condition.lanes & a.lanes) | (~condition.lanes & b.lanes)};
}
template <typename A, typename B>
OPSMITH_INLINE A select(bool condition, A a, B b) {
  return condition ? a : A(b);
}

// ---- Half types, held as float: to nearest even, NaN stays NaN.

#if defined(__AVX512F__) && OPSMITH_LANES == 16 && !defined(__clang__)
// GCC 12 makes five instructions of the one, and all of them wait for the same port.
typedef short SixteenShorts __attribute__((vector_size(32)));
typedef int SixteenInts __attribute__((vector_size(64)));
OPSMITH_INLINE Vec<uint32_t> widened(Vec<uint16_t> bits) {
  return (Vec<uint32_t>)__builtin_ia32_pmovzxwd512_mask((SixteenShorts)bits, SixteenInts{}, -1);
}
OPSMITH_INLINE Vec<uint16_t> narrowed(Vec<uint32_t> bits) {
  return (Vec<uint16_t>)__builtin_ia32_pmovdw512_mask((SixteenInts)bits, SixteenShorts{}, -1);
}
#else
OPSMITH_INLINE Vec<uint32_t> widened(Vec<uint16_t> bits) { return __builtin_convertvector(bits, Vec<uint32_t>); }
OPSMITH_INLINE Vec<uint16_t> narrowed(Vec<uint32_t> bits) { return __builtin_convertvector(bits, Vec<uint16_t>); }
#endif

OPSMITH_INLINE Vec<float> from_bfloat16(Vec<uint16_t> bits) { return (Vec<float>)(widened(bits) << 16); }
OPSMITH_INLINE Vec<uint16_t> to_bfloat16(Vec<float> value) {
  const Vec<uint32_t> bits = (Vec<uint32_t>)value;
  const Vec<uint32_t> rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Vec<uint32_t> nan = broadcast(uint32_t(0x7fc0));
  return narrowed(value == value ? rounded : nan);
}

#if defined(__F16C__) && OPSMITH_LANES == 16 && defined(__AVX512F__)
OPSMITH_INLINE Vec<float> from_float16(Vec<uint16_t> bits) {
  typedef short Shorts __attribute__((vector_size(32)));
  return __builtin_ia32_vcvtph2ps512_mask((Shorts)bits, Vec<float>{}, -1, 4);
}
OPSMITH_INLINE Vec<uint16_t> to_float16(Vec<float> value) {
  typedef short Shorts __attribute__((vector_size(32)));
  return (Vec<uint16_t>)__builtin_ia32_vcvtps2ph512_mask(value, 0, Shorts{}, -1);
}
#elif defined(__F16C__) && OPSMITH_LANES <= 8
// Shorter vectors take the lower lanes of eight.
typedef short EightShorts __attribute__((vector_size(16)));
typedef float EightFloats __attribute__((vector_size(32)));
OPSMITH_INLINE Vec<float> from_float16(Vec<uint16_t> bits) {
  EightShorts wide = {};
  __builtin_memcpy(&wide, &bits, sizeof bits);
  const EightFloats values = __builtin_ia32_vcvtph2ps256(wide);
  Vec<float> result;
  __builtin_memcpy(&result, &values, sizeof result);
  return result;
}
OPSMITH_INLINE Vec<uint16_t> to_float16(Vec<float> value) {
  EightFloats wide = {};
  __builtin_memcpy(&wide, &value, sizeof value);
  const EightShorts bits = __builtin_ia32_vcvtps2ph256(wide, 0);
  Vec<uint16_t> result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}
#else
OPSMITH_INLINE Vec<float> from_float16(Vec<uint16_t> bits) {
  const Vec<uint32_t> wide = __builtin_convertvector(bits, Vec<uint32_t>);
  const Vec<uint32_t> magnitude = (wide & 0x7fffu) << 13;
  // Scaling by 2^112 moves the exponent's bias from 15 to 127, denormals included.
  const Vec<uint32_t> scaled = (Vec<uint32_t>)((Vec<float>)magnitude * 0x1p112f);
  const Vec<uint32_t> special = magnitude | 0x7f800000u;  // infinity and NaN
  const Vec<uint32_t> sign = (wide & 0x8000u) << 16;
  return (Vec<float>)((magnitude >= (0x1fu << 23) ? special : scaled) | sign);
}
OPSMITH_INLINE Vec<uint16_t> to_float16(Vec<float> value) {
  const Vec<uint32_t> bits = (Vec<uint32_t>)value;
  const Vec<uint32_t> magnitude = bits & 0x7fffffffu;
  const Vec<uint32_t> sign = (bits >> 16) & 0x8000u;
  const Vec<uint32_t> normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding one half leaves a denormal's bits, rounded to nearest even, at the bottom of the sum.
  const Vec<uint32_t> denormal = (Vec<uint32_t>)((Vec<float>)magnitude + 0.5f) - 0x3f000000u;
  const Vec<uint32_t> infinite = broadcast(uint32_t(0x7c00)), nan = broadcast(uint32_t(0x7e00));
  Vec<uint32_t> result = magnitude < (113u << 23) ? denormal : normal;
  result = magnitude >= 0x477ff000u ? infinite : result;  // 65520 and above
  result = magnitude > 0x7f800000u ? nan : result;
  return __builtin_convertvector(result | sign, Vec<uint16_t>);
}
#endif

OPSMITH_INLINE Vec<float> round_to_float16(Vec<float> x) { return from_float16(to_float16(x)); }
OPSMITH_INLINE Vec<float> round_to_bfloat16(Vec<float> x) { return from_bfloat16(to_bfloat16(x)); }
OPSMITH_INLINE float round_to_float16(float x) { return round_to_float16(broadcast(x))[0]; }
OPSMITH_INLINE float round_to_bfloat16(float x) { return round_to_bfloat16(broadcast(x))[0]; }

// ---- Casts as in torch: a float to an integer truncates, a number to a bool is true if it is not zero.

template <typename To, typename From>
struct Cast {
  static OPSMITH_INLINE auto of(From x) {
    if constexpr (!is_vector<From>) {
      return To(x);
    } else if constexpr (is_float<Element<From>> && !is_float<To> && sizeof(To) < 4) {
      return __builtin_convertvector(__builtin_convertvector(x, Vec<int32_t>), Vec<To>);
    } else {
      return __builtin_convertvector(x, Vec<To>);
    }
  }
};
template <typename From>
struct Cast<bool, From> {
  static OPSMITH_INLINE auto of(From x) { return not_equal(x, From{}); }
};
template <typename To>
struct Cast<To, Mask> {
  static OPSMITH_INLINE auto of(Mask x) { return __builtin_convertvector(x.lanes & 1, Vec<To>); }
};
template <>
struct Cast<bool, Mask> {
  static OPSMITH_INLINE Mask of(Mask x) { return x; }
};
template <typename To, typename From>
OPSMITH_INLINE auto cast(From x) {
  return Cast<To, From>::of(x);
}

// ---- Memory: an element as stored (`raw`) and as computed with (`held`).

template <typename T>
struct Format {
  using raw = T;
  using held = Vec<T>;
  static OPSMITH_INLINE held unpack(Vec<raw> lanes) { return lanes; }
  static OPSMITH_INLINE Vec<raw> pack(held value) { return value; }
};
template <>
struct Format<bool> {
  using raw = uint8_t;
  using held = Mask;
  static OPSMITH_INLINE held unpack(Vec<raw> lanes) {
    return {__builtin_convertvector(lanes, Vec<int32_t>) != 0};
  }
  static OPSMITH_INLINE Vec<raw> pack(held value) { return __builtin_convertvector(value.lanes & 1, Vec<raw>); }
};
template <>
struct Format<float16> {
  using raw = uint16_t;
  using held = Vec<float>;
  static OPSMITH_INLINE held unpack(Vec<raw> lanes) { return from_float16(lanes); }
  static OPSMITH_INLINE Vec<raw> pack(held value) { return to_float16(value); }
};
template <>
struct Format<bfloat16> {
  using raw = uint16_t;
  using held = Vec<float>;
  static OPSMITH_INLINE held unpack(Vec<raw> lanes) { return from_bfloat16(lanes); }
  static OPSMITH_INLINE Vec<raw> pack(held value) { return to_bfloat16(value); }
};
template <typename T>
using Held = typename Format<T>::held;
template <typename T>
using Raw = typename Format<T>::raw;

// Neighbouring elements, at any alignment.
template <typename T>
OPSMITH_INLINE Held<T> load(const T* source) {
  Vec<Raw<T>> lanes;
  __builtin_memcpy(&lanes, source, sizeof lanes);
  return Format<T>::unpack(lanes);
}
template <typename T>
OPSMITH_INLINE void store(T* target, Held<T> value) {
  const Vec<Raw<T>> lanes = Format<T>::pack(value);
  __builtin_memcpy(target, &lanes, sizeof lanes);
}

// One element, in every lane.
template <typename T>
OPSMITH_INLINE Held<T> load_one(const T* source) {
  Raw<T> element;
  __builtin_memcpy(&element, source, sizeof element);
  return Format<T>::unpack(broadcast(element));
}

// The first `count` lanes, each at its own offset; the others are zero.
template <typename T, typename Offset>
OPSMITH_INLINE Held<T> gather(const T* source, int count, Offset offset) {
  Raw<T> lanes[LANES] = {};
  for (int lane = 0; lane < count; ++lane) __builtin_memcpy(lanes + lane, source + offset(lane), sizeof(T));
  Vec<Raw<T>> vector;
  __builtin_memcpy(&vector, lanes, sizeof vector);
  return Format<T>::unpack(vector);
}
template <typename T, typename Offset>
OPSMITH_INLINE void scatter(T* target, int count, Offset offset, Held<T> value) {
  const Vec<Raw<T>> vector = Format<T>::pack(value);
  Raw<T> lanes[LANES];
  __builtin_memcpy(lanes, &vector, sizeof vector);
  for (int lane = 0; lane < count; ++lane) __builtin_memcpy(target + offset(lane), lanes + lane, sizeof(T));
}

}  // namespace opsmith
