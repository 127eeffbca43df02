// How a thread reaches its elements: launch parameters, packs of up to 16 bytes, and positions from an index.
#pragma once

#include <opsmith/pointwise/cuda_types.h>

namespace opsmith {

// --- launch parameters: pointers, scalars, sizes, strides -------------------------------------------------------

template <int Count>
struct Parameters {
  int64_t value[Count];
};

template <class T, int Count>
OPSMITH_DEVICE T* pointer(const Parameters<Count>& parameters, int place) {
  return reinterpret_cast<T*>(parameters.value[place]);
}

// An argument of the operator: double, int64_t or bool.
template <class T, int Count>
OPSMITH_DEVICE T scalar(const Parameters<Count>& parameters, int place) {
  if constexpr (same_type<T, double>) {
    return bits_as<double>(parameters.value[place]);
  } else {
    return T(parameters.value[place]);
  }
}

// --- positions --------------------------------------------------------------------------------------------------

template <class Index>
OPSMITH_DEVICE Index divide(Index dividend, Index divisor) {
  if constexpr (sizeof(Index) == 8) {
    // A 64-bit division takes several times as long as a 32-bit one, and few dividends need it.
    if (((dividend | divisor) >> 32) == 0) return uint32_t(dividend) / uint32_t(divisor);
  }
  return dividend / divisor;
}

// One operand's strides, or sizes, over some dimensions, the innermost first.
template <int Dimensions, class Index>
struct Extent {
  Index at[Dimensions > 0 ? Dimensions : 1];

  template <int Count>
  OPSMITH_DEVICE Extent(const Parameters<Count>& parameters, int place) {
#pragma unroll
    for (int d = 0; d < Dimensions; ++d) at[d] = Index(parameters.value[place + d]);
  }
};

// Sizes that an index is divided by. The upper half of a 32-bit size's parameter is the multiplier to divide by it
// (loops.h's with_multiplier): a quotient takes a tenth of the time, and loads wait for it.
template <int Dimensions, class Index>
struct Sizes : Extent<Dimensions, Index> {
  uint32_t inverse[Dimensions > 0 ? Dimensions : 1];

  template <int Count>
  OPSMITH_DEVICE Sizes(const Parameters<Count>& parameters, int place) : Extent<Dimensions, Index>(parameters, place) {
#pragma unroll
    for (int d = 0; d < Dimensions; ++d) inverse[d] = uint32_t(uint64_t(parameters.value[place + d]) >> 32);
  }

  OPSMITH_DEVICE Index quotient(Index linear, int d) const {
    if constexpr (sizeof(Index) == 8) {
      return divide(linear, this->at[d]);
    } else {
      return (__umulhi(linear, inverse[d]) + linear) >> (32 - __clz(int(this->at[d] - 1)));
    }
  }
};

// A linear index in each dimension.
template <int Dimensions, class Index>
struct Position {
  Index at[Dimensions > 0 ? Dimensions : 1];

  OPSMITH_DEVICE Position(Index linear, const Sizes<Dimensions, Index>& sizes) {
#pragma unroll
    for (int d = 0; d < Dimensions - 1; ++d) {
      const Index next = sizes.quotient(linear, d);
      at[d] = linear - next * sizes.at[d];
      linear = next;
    }
    if (Dimensions > 0) at[Dimensions - 1] = linear;
  }

  OPSMITH_DEVICE Index along(const Extent<Dimensions, Index>& strides) const {
    Index offset = 0;
#pragma unroll
    for (int d = 0; d < Dimensions; ++d) offset += at[d] * strides.at[d];
    return offset;
  }

  // The same where the innermost stride is known to be 0 or 1.
  template <int Innermost>
  OPSMITH_DEVICE Index along(const Extent<Dimensions, Index>& strides) const {
    Index offset = Innermost * at[0];
#pragma unroll
    for (int d = 1; d < Dimensions; ++d) offset += at[d] * strides.at[d];
    return offset;
  }
};

// A tensor addressed by its strides, over the dimensions that a reduction keeps and over the others.
template <class T, class Index, int Kept, int Inner>
struct Strided {
  T* data;
  Extent<Kept, Index> kept;
  Extent<Inner, Index> inner;

  template <int Count>
  OPSMITH_DEVICE Strided(const Parameters<Count>& parameters, int place, int strides)
      : data(pointer<T>(parameters, place)), kept(parameters, strides), inner(parameters, strides + Kept) {}
};

// The same in the column path, where the innermost dimension is separate from the kept ones.
template <class T, class Index, int Kept, int Inner>
struct ColumnStrided : Strided<T, Index, Kept, Inner> {
  Index column;

  template <int Count>
  OPSMITH_DEVICE ColumnStrided(const Parameters<Count>& parameters, int place, int strides)
      : Strided<T, Index, Kept, Inner>(parameters, place, strides + 1), column(Index(parameters.value[strides])) {}
};

// --- packs: V neighbouring elements as stored in memory --------------------------------------------------------

template <class T, int V>
struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) Pack {
  T element[V];

  OPSMITH_DEVICE Value<T> operator[](int lane) const {
    if constexpr (same_type<T, bfloat16> && V > 1) {
      // A bfloat16 is the upper half of a float: one instruction takes either out of a pair.
      const uint32_t pair = bits_as<Pack<uint32_t, V / 2>>(*this).element[lane / 2];
      return bits_as<float>(lane % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
    } else {
      return widen(element[lane]);
    }
  }
};

// One element that stands for V.
template <class T>
struct Repeated {
  T element;

  OPSMITH_DEVICE Value<T> operator[](int) const { return widen(element); }
};

// The widest type that one instruction moves, for a pack of this number of bytes.
template <int Bytes>
struct ChunkOf {
  using type = uint4;
};
template <>
struct ChunkOf<8> {
  using type = uint2;
};
template <>
struct ChunkOf<4> {
  using type = unsigned int;
};
template <>
struct ChunkOf<2> {
  using type = unsigned short;
};
template <>
struct ChunkOf<1> {
  using type = unsigned char;
};

template <int Bytes>
struct Chunks {
  using Chunk = typename ChunkOf<Bytes>::type;
  static constexpr int count = Bytes > 16 ? Bytes / 16 : 1;
  Chunk chunk[count];
};

// Not through the read-only cache: an in-place operator writes the tensor that it reads. (Streaming hints, ld.cs and
// st.cs, cost 1-4 % of the copy bandwidth of an H200, ld.L2::256B 1 % at 2^22 elements; nothing was gained by them.)
template <int V, class T>
OPSMITH_DEVICE Pack<T, V> load_pack(const T* from) {
  using Whole = Chunks<V * sizeof(T)>;
  Whole whole;
#pragma unroll
  for (int i = 0; i < Whole::count; ++i) {
    whole.chunk[i] = reinterpret_cast<const typename Whole::Chunk*>(from)[i];
  }
  return bits_as<Pack<T, V>>(whole);
}

template <class T>
OPSMITH_DEVICE Repeated<T> load_repeated(const T* from) {
  return {load_pack<1>(from).element[0]};
}

template <class T>
OPSMITH_DEVICE Value<T> load_once(const T* from) {
  return load_pack<1>(from)[0];
}

// V elements at a stride.
template <int V, class T, class Index>
OPSMITH_DEVICE Pack<T, V> load_apart(const T* from, Index stride) {
  Pack<T, V> pack;
#pragma unroll
  for (int lane = 0; lane < V; ++lane) pack.element[lane] = load_pack<1>(from + lane * stride).element[0];
  return pack;
}

// Values as a pack; half types two at a time, which is one instruction.
template <class T, int V, class From>
OPSMITH_DEVICE Pack<T, V> packed(const From (&values)[V]) {
  if constexpr (V > 1 && (same_type<T, bfloat16> || same_type<T, float16>)) {
    Pack<uint32_t, V / 2> pairs;
#pragma unroll
    for (int i = 0; i < V / 2; ++i) {
      const float first = float(values[2 * i]);
      const float second = float(values[2 * i + 1]);
      pairs.element[i] = same_type<T, bfloat16> ? bfloat16_pair(first, second) : float16_pair(first, second);
    }
    return bits_as<Pack<T, V>>(pairs);
  } else {
    Pack<T, V> pack;
#pragma unroll
    for (int lane = 0; lane < V; ++lane) pack.element[lane] = narrow<T>(values[lane]);
    return pack;
  }
}

template <int V, class T, class From>
OPSMITH_DEVICE void store_pack(T* to, const From (&values)[V]) {
  using Whole = Chunks<V * sizeof(T)>;
  const Whole whole = bits_as<Whole>(packed<T>(values));
#pragma unroll
  for (int i = 0; i < Whole::count; ++i) {
    reinterpret_cast<typename Whole::Chunk*>(to)[i] = whole.chunk[i];
  }
}

template <int V, class T, class From, class Index>
OPSMITH_DEVICE void store_apart(T* to, Index stride, const From (&values)[V]) {
#pragma unroll
  for (int lane = 0; lane < V; ++lane) {
    const From single[1] = {values[lane]};
    store_pack<1>(to + lane * stride, single);
  }
}

}  // namespace opsmith
