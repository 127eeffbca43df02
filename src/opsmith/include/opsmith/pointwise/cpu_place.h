// Where a vector's elements are in a kernel's operands, and a cursor that goes through the dimensions.
#pragma once

#include "cpu_vector.h"

namespace opsmith {

// ---- Launch parameters.

template <typename T>
OPSMITH_INLINE T* pointer(int64_t parameter) {
  return reinterpret_cast<T*>(parameter);
}
OPSMITH_INLINE double as_double(int64_t parameter) {
  double value;
  __builtin_memcpy(&value, &parameter, sizeof value);
  return value;
}

// ---- Places: where the elements of one vector are.

constexpr int at_least_one(int count) { return count > 0 ? count : 1; }

// Neighbours along the innermost dimension. The first `stale` lanes have been computed before.
template <int STRIDED, bool OVERLAPS>
struct Row {
  int64_t index;     // of the first element, over all dimensions
  int64_t position;  // of the first element, in strides beyond `offset`
  int64_t offset[at_least_one(STRIDED)];  // in each strided operand
  int64_t stride[at_least_one(STRIDED)];  // along the innermost dimension
  int stale;
};

// Elements from anywhere, `count` of them: of rows shorter than a vector.
template <int STRIDED>
struct Scattered {
  int64_t index;
  int count;
  int64_t offset[at_least_one(STRIDED)][LANES];
};

template <int K, bool O, typename T>
OPSMITH_INLINE Held<T> load_linear(const Row<K, O>& at, const T* source) {
  return load(source + at.index);
}
template <int K, bool O, typename T>
OPSMITH_INLINE Held<T> load_contiguous(const Row<K, O>& at, int operand, const T* source) {
  return load(source + at.offset[operand] + at.position);
}
template <int K, bool O, typename T>
OPSMITH_INLINE Held<T> load_repeated(const Row<K, O>& at, int operand, const T* source) {
  return load_one(source + at.offset[operand]);
}
template <int K, bool O, typename T>
OPSMITH_INLINE Held<T> load_strided(const Row<K, O>& at, int operand, const T* source) {
  const int64_t stride = at.stride[operand];
  return gather(source + at.offset[operand] + at.position * stride, LANES, [=](int lane) { return lane * stride; });
}
template <int K, bool O, typename T>
OPSMITH_INLINE void store_linear(const Row<K, O>& at, T* target, Held<T> value) {
  store(target + at.index, value);
}
template <int K, bool O, typename T>
OPSMITH_INLINE void store_contiguous(const Row<K, O>& at, int operand, T* target, Held<T> value) {
  store(target + at.offset[operand] + at.position, value);
}
template <int K, bool O, typename T>
OPSMITH_INLINE void store_strided(const Row<K, O>& at, int operand, T* target, Held<T> value) {
  const int64_t stride = at.stride[operand];
  scatter(target + at.offset[operand] + at.position * stride, LANES, [=](int lane) { return lane * stride; }, value);
}

template <int K, typename T>
OPSMITH_INLINE Held<T> load_linear(const Scattered<K>& at, const T* source) {
  return gather(source + at.index, at.count, [](int lane) { return lane; });
}
template <int K, typename T>
OPSMITH_INLINE Held<T> load_strided(const Scattered<K>& at, int operand, const T* source) {
  return gather(source, at.count, [&](int lane) { return at.offset[operand][lane]; });
}
template <int K, typename T>
OPSMITH_INLINE Held<T> load_contiguous(const Scattered<K>& at, int operand, const T* source) {
  return load_strided(at, operand, source);
}
template <int K, typename T>
OPSMITH_INLINE Held<T> load_repeated(const Scattered<K>& at, int operand, const T* source) {
  return load_strided(at, operand, source);
}
template <int K, typename T>
OPSMITH_INLINE void store_linear(const Scattered<K>& at, T* target, Held<T> value) {
  scatter(target + at.index, at.count, [](int lane) { return lane; }, value);
}
template <int K, typename T>
OPSMITH_INLINE void store_strided(const Scattered<K>& at, int operand, T* target, Held<T> value) {
  scatter(target, at.count, [&](int lane) { return at.offset[operand][lane]; }, value);
}
template <int K, typename T>
OPSMITH_INLINE void store_contiguous(const Scattered<K>& at, int operand, T* target, Held<T> value) {
  store_strided(at, operand, target, value);
}

OPSMITH_INLINE Vec<int32_t> lane_numbers() {
  Vec<int32_t> numbers;
  for (int lane = 0; lane < LANES; ++lane) numbers[lane] = lane;
  return numbers;
}
// sum += value in the lanes that belong to this place.
template <int K, bool OVERLAPS, typename V>
OPSMITH_INLINE void add(const Row<K, OVERLAPS>& at, V& sum, V value) {
  if constexpr (OVERLAPS) value = select(Mask{lane_numbers() >= at.stale}, value, V{});
  sum += value;
}
template <int K, typename V>
OPSMITH_INLINE void add(const Scattered<K>& at, V& sum, V value) {
  sum += select(Mask{lane_numbers() < at.count}, value, V{});
}

// ---- Going through dimensions, innermost first, with divisions only at the start.

// `strides` holds those of operand k from k * PITCH on.
template <int STRIDED, int DIMENSIONS, int PITCH>
struct Cursor {
  const int64_t* sizes;
  const int64_t* strides;
  int64_t counter[at_least_one(DIMENSIONS)] = {};
  int64_t offset[at_least_one(STRIDED)] = {};  // of the element that the counters point to

  static constexpr int pitch = PITCH;

  OPSMITH_INLINE Cursor(const int64_t* sizes, const int64_t* strides) : sizes(sizes), strides(strides) {}

  OPSMITH_INLINE int64_t stride(int operand) const { return strides[operand * PITCH]; }
  OPSMITH_INLINE void move(int dimension, int64_t steps) {
    counter[dimension] += steps;
    for (int k = 0; k < STRIDED; ++k) offset[k] += steps * strides[k * PITCH + dimension];
  }
  OPSMITH_INLINE void locate(int64_t index) {
    for (int dimension = 0; dimension < DIMENSIONS && index != 0; ++dimension) {
      move(dimension, index % sizes[dimension]);
      index /= sizes[dimension];
    }
  }
  // Forward by `steps` along the innermost dimension, at most to its end, and from there to the next row.
  OPSMITH_INLINE void advance(int64_t steps) {
    if constexpr (DIMENSIONS > 0) {
      move(0, steps);
      for (int dimension = 0; dimension + 1 < DIMENSIONS && counter[dimension] == sizes[dimension]; ++dimension) {
        move(dimension, -sizes[dimension]);
        move(dimension + 1, 1);
      }
    }
  }
};

}  // namespace opsmith
