// How a generated kernel walks its tensors: pointwise/layout.py in C++, on arrays of fixed size. Strides count
// elements; the dimensions of a Walk run from the innermost to the outermost.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <utility>

namespace opsmith {

// Calls beyond these go to the Python twin.
constexpr int kMaxDimensions = 16;
constexpr int kMaxOperands = 32;

// A tuple of sizes, strides or dimensions. Not initialised: `count` says how many there are.
struct Dimensions {
  int count = 0;
  int64_t at[kMaxDimensions];

  void push(int64_t value) { at[count++] = value; }
  c10::IntArrayRef ref() const { return {at, static_cast<size_t>(count)}; }
  bool operator==(const Dimensions& other) const { return ref() == other.ref(); }
  int64_t product() const {
    int64_t product = 1;
    for (int i = 0; i < count; ++i) product *= at[i];
    return product;
  }
};

// A tensor as layout.py takes it.
struct Strided {
  c10::IntArrayRef sizes;
  c10::IntArrayRef strides;
};

// Widens `shape` to what it and `sizes` broadcast to; false where they do not.
inline bool broadcast(Dimensions& shape, c10::IntArrayRef sizes) {
  const int ndim = static_cast<int>(sizes.size());
  if (ndim > kMaxDimensions) return false;
  if (ndim > shape.count) {
    const int added = ndim - shape.count;
    for (int d = shape.count - 1; d >= 0; --d) shape.at[d + added] = shape.at[d];
    for (int d = 0; d < added; ++d) shape.at[d] = 1;
    shape.count = ndim;
  }
  int64_t* last = shape.at + shape.count - ndim;
  for (int d = 0; d < ndim; ++d) {
    if (last[d] == 1) {
      last[d] = sizes[d];
    } else if (sizes[d] != 1 && sizes[d] != last[d]) {
      return false;
    }
  }
  return true;
}

// Whether a tensor of these sizes broadcasts to `shape` and does not widen it.
inline bool broadcasts_to(c10::IntArrayRef sizes, const Dimensions& shape) {
  const int missing = shape.count - static_cast<int>(sizes.size());
  if (missing < 0) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && sizes[d] != shape.at[missing + d]) return false;
  }
  return true;
}

// The strides of a tensor expanded to `shape`: zero where it is repeated.
inline void expand(const Strided& tensor, const Dimensions& shape, int64_t* strides) {
  const int missing = shape.count - static_cast<int>(tensor.sizes.size());
  for (int d = 0; d < missing; ++d) strides[d] = 0;
  for (int d = missing; d < shape.count; ++d) {
    const bool repeated = tensor.sizes[d - missing] == 1 && shape.at[d] != 1;
    strides[d] = repeated ? 0 : tensor.strides[d - missing];
  }
}

// Whether a tensor fills its memory without gaps, its last dimension innermost.
inline bool is_dense(const Strided& tensor) {
  int64_t expected = 1;
  for (int d = static_cast<int>(tensor.sizes.size()) - 1; d >= 0; --d) {
    if (tensor.sizes[d] == 1) continue;
    if (tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return true;
}

// The dimensions of `shape` from the innermost to the outermost, as TensorIterator orders them for these tensors, which
// all broadcast to it.
inline Dimensions order_of(const Dimensions& shape, const Strided* tensors, int count) {
  Dimensions order;
  for (int d = shape.count - 1; d >= 0; --d) order.push(d);
  bool dense = true;
  for (int i = 0; i < count && dense; ++i) dense = tensors[i].sizes == shape.ref() && is_dense(tensors[i]);
  if (shape.count < 2 || dense) return order;

  int64_t strides[kMaxOperands][kMaxDimensions];
  for (int i = 0; i < count; ++i) expand(tensors[i], shape, strides[i]);
  // 1 if `first` must lie outside of `second`, -1 if inside, 0 if no tensor tells.
  const auto compared = [&](int64_t first, int64_t second) {
    for (int i = 0; i < count; ++i) {
      const int64_t a = strides[i][first], b = strides[i][second];
      if (a == 0 || b == 0) continue;
      if (a != b) return a < b ? -1 : 1;
      if (shape.at[first] > shape.at[second]) return 1;
    }
    return 0;
  };
  for (int index = 1; index < shape.count; ++index) {
    int moving = index;
    for (int other = index - 1; other >= 0; --other) {
      const int comparison = compared(order.at[other], order.at[moving]);
      if (comparison > 0) {
        std::swap(order.at[other], order.at[moving]);
        moving = other;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  return order;
}

// The strides of a result of these sizes without gaps, in the order of the `ndim` dimensions it broadcasts to.
inline Dimensions dense_strides(c10::IntArrayRef sizes, const Dimensions& order, int ndim) {
  const int missing = ndim - static_cast<int>(sizes.size());
  Dimensions strides;
  for (size_t d = 0; d < sizes.size(); ++d) strides.push(1);
  int64_t step = 1;
  for (int i = 0; i < order.count; ++i) {
    const int64_t d = order.at[i] - missing;
    if (d < 0) continue;
    strides.at[d] = step;
    if (sizes[d] > 1) step *= sizes[d];
  }
  return strides;
}

// Merged dimensions, innermost first, and each operand's strides over them.
struct Walk {
  Dimensions sizes;
  int operands = 0;
  int64_t strides[kMaxOperands][kMaxDimensions];
};

// A size with what a kernel divides by it with: layout.py's size_word.
inline int64_t size_word(int64_t size) {
  const int shift = size > 1 ? 64 - __builtin_clzll(static_cast<uint64_t>(size - 1)) : 0;
  const uint64_t inverse = ((((uint64_t(1) << shift) - size) << 32) / size) + 1;
  return static_cast<int64_t>(inverse << 32 | static_cast<uint64_t>(size));
}

// The fewest dimensions that visit the same elements. `expanded` has an operand's strides over `shape` a row.
inline void merge(const Dimensions& shape, const Dimensions& order, const int64_t (*expanded)[kMaxDimensions],
                  int operands, Walk& walk) {
  walk.sizes.count = 0;
  walk.operands = operands;
  for (int i = 0; i < order.count; ++i) {
    const int64_t d = order.at[i];
    const int64_t size = shape.at[d];
    if (size == 1) continue;
    const int last = walk.sizes.count - 1;
    bool joins = last >= 0;
    for (int k = 0; k < operands && joins; ++k) {
      joins = expanded[k][d] == walk.strides[k][last] * walk.sizes.at[last];
    }
    if (joins) {
      walk.sizes.at[last] *= size;
      continue;
    }
    for (int k = 0; k < operands; ++k) walk.strides[k][last + 1] = expanded[k][d];
    walk.sizes.push(size);
  }
  if (walk.sizes.count == 0) {
    walk.sizes.push(1);
    for (int k = 0; k < operands; ++k) walk.strides[k][0] = 0;
  }
}

// How an operand is addressed, as layout.py's Variant.modes tell; pointwise/native.py numbers them alike.
enum Mode : uint8_t {
  kLinear = 0,
  kScalar = 1,
  kRepeated = 2,    // strided0
  kContiguous = 3,  // strided1
  kStrided = 4,     // stridedn
  kReducedAll = 5,
  kReducedInner = 6,
  kReducedOuter = 7,
  kReducedNone = 8,
  kAbsent = 9,
};
inline bool is_strided(uint8_t mode) { return mode >= kRepeated && mode <= kStrided; }
inline bool is_reduced(uint8_t mode) { return mode >= kReducedAll && mode <= kReducedNone; }

inline Mode strided_mode(const int64_t* strides, int count) {
  bool scalar = true;
  for (int d = 0; d < count && scalar; ++d) scalar = strides[d] == 0;
  if (scalar) return kScalar;
  return strides[0] == 0 ? kRepeated : strides[0] == 1 ? kContiguous : kStrided;
}

// The same, where an operand may also be addressed by the element's own index.
inline Mode indexed_mode(const Walk& walk, int operand) {
  const int64_t* strides = walk.strides[operand];
  int64_t step = 1;
  bool linear = true;
  for (int d = 0; d < walk.sizes.count && linear; ++d) {
    linear = strides[d] == step || walk.sizes.at[d] == 1;
    step *= walk.sizes.at[d];
  }
  return linear ? kLinear : strided_mode(strides, walk.sizes.count);
}

// How reduced results share one pass: the dimensions of the walk that the pass keeps apart, as bits, and what each
// result keeps of them. A result that fits into none of the roles waits for a pass of its own: kAbsent.
struct Grouping {
  uint32_t kept = 0;
  uint8_t roles[kMaxOperands];

  bool by_column() const { return (kept & 1) != 0; }
};

// The pass that serves the result with the most dimensions, and whatever else it can. `waiting`: operands of the walk.
inline Grouping group(const Walk& walk, const int* waiting, int count) {
  uint32_t kept_by[kMaxOperands];
  Grouping grouping;
  int most = -1;
  for (int i = 0; i < count; ++i) {
    kept_by[i] = 0;
    for (int d = 0; d < walk.sizes.count; ++d) {
      if (walk.strides[waiting[i]][d] != 0) kept_by[i] |= 1u << d;
    }
    if (__builtin_popcount(kept_by[i]) > most) {
      most = __builtin_popcount(kept_by[i]);
      grouping.kept = kept_by[i];
    }
  }
  const uint32_t kept = grouping.kept;
  for (int i = 0; i < count; ++i) {
    const uint32_t own = kept_by[i];
    uint8_t role = kAbsent;
    if (own == kept) {
      role = kReducedAll;
    } else if (own == 0) {
      role = kReducedNone;
    } else if (grouping.by_column() && own == 1) {
      role = kReducedInner;
    } else if (grouping.by_column() && own == (kept & ~1u)) {
      role = kReducedOuter;
    }
    grouping.roles[i] = role;
  }
  return grouping;
}

}  // namespace opsmith
