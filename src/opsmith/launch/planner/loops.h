// The loops of a generated kernel: their dimensions, how each operand is addressed, which sums share a pass.
#pragma once

#include "dimensions.h"

namespace opsmith {

// Merged dimensions, innermost first, and each operand's strides over them.
struct Loops {
  Dimensions sizes;
  int operands = 0;
  int64_t strides[kMaxOperands][kMaxDimensions];
};

// The fewest dimensions that visit the same elements: without those of size one, and with neighbours merged where one
// stride covers both for every operand. `expanded` has one row of strides over `shape` per operand.
inline void merge(Sizes shape, const Dimensions& order, const int64_t (*expanded)[kMaxDimensions], int operands,
                  Loops& loops) {
  loops.sizes.count = 0;
  loops.operands = operands;
  for (int i = 0; i < order.count; ++i) {
    const int64_t d = order.at[i];
    const int64_t size = shape[static_cast<int>(d)];
    if (size == 1) continue;
    const int last = loops.sizes.count - 1;
    bool joins = last >= 0;
    for (int k = 0; k < operands && joins; ++k) {
      joins = expanded[k][d] == loops.strides[k][last] * loops.sizes.at[last];
    }
    if (joins) {
      loops.sizes.at[last] *= size;
      continue;
    }
    for (int k = 0; k < operands; ++k) loops.strides[k][last + 1] = expanded[k][d];
    loops.sizes.push(size);
  }
  if (loops.sizes.count == 0) {
    loops.sizes.push(1);
    for (int k = 0; k < operands; ++k) loops.strides[k][0] = 0;
  }
}

// A size below 2^31, and in the upper half the multiplier by which a kernel with 32-bit indices divides by it:
// index / size is (index + (index * upper >> 32)) >> bits, where 2^bits is the least power of two not below the size.
// Exact for indices below 2^31 (Granlund and Montgomery, 1994).
inline int64_t with_multiplier(int64_t size) {
  const int shift = size > 1 ? 64 - __builtin_clzll(static_cast<uint64_t>(size - 1)) : 0;
  const uint64_t inverse = ((((uint64_t(1) << shift) - size) << 32) / size) + 1;
  return static_cast<int64_t>(inverse << 32 | static_cast<uint64_t>(size));
}

// How a kernel addresses an operand; planner/__init__.py has the same numbers.
enum Mode : uint8_t {
  kLinear = 0,      // by the element's own index
  kScalar = 1,      // one element for all
  kRepeated = 2,    // strided, and repeated along the innermost dimension
  kContiguous = 3,  // strided, and contiguous along the innermost dimension
  kStrided = 4,
  kReducedAll = 5,  // a sum that keeps every dimension that its pass keeps
  kReducedInner = 6,
  kReducedOuter = 7,
  kReducedNone = 8,
  kAbsent = 9,  // a result of another pass
  kPerRow = 10,  // a result with one value for each row
  kShared = 11,  // the same contiguous elements for every row
  kReducedSegments = 12,  // a sum over each run of neighbouring elements of a row
};
inline bool is_strided(uint8_t mode) { return mode >= kRepeated && mode <= kStrided; }
inline bool is_packed(uint8_t mode) { return mode == kLinear || mode == kContiguous || mode == kShared; }

inline Mode strided_mode(const int64_t* strides, int count) {
  if (std::all_of(strides, strides + count, [](int64_t stride) { return stride == 0; })) return kScalar;
  return strides[0] == 0 ? kRepeated : strides[0] == 1 ? kContiguous : kStrided;
}

// The same where the kernel has the element's own index.
inline Mode indexed_mode(const Loops& loops, int operand) {
  const int64_t* strides = loops.strides[operand];
  int64_t step = 1;
  bool linear = true;
  for (int d = 0; d < loops.sizes.count && linear; ++d) {
    linear = strides[d] == step || loops.sizes.at[d] == 1;
    step *= loops.sizes.at[d];
  }
  return linear ? kLinear : strided_mode(strides, loops.sizes.count);
}

// Sums that share a pass: the dimensions that the pass keeps, as bits, and which of them each sum keeps. kAbsent: a sum
// that fits none of the roles and needs another pass.
struct Grouping {
  uint32_t kept = 0;
  uint8_t roles[kMaxOperands];

  bool by_column() const { return (kept & 1) != 0; }
};

// The pass for the sum with the most dimensions and all other sums that fit. `waiting`: operands of the loops.
inline Grouping group(const Loops& loops, const int* waiting, int count) {
  uint32_t kept_by[kMaxOperands];
  Grouping grouping;
  int most = -1;
  for (int i = 0; i < count; ++i) {
    kept_by[i] = 0;
    for (int d = 0; d < loops.sizes.count; ++d) {
      if (loops.strides[waiting[i]][d] != 0) kept_by[i] |= 1u << d;
    }
    if (__builtin_popcount(kept_by[i]) > most) {
      most = __builtin_popcount(kept_by[i]);
      grouping.kept = kept_by[i];
    }
  }
  const uint32_t kept = grouping.kept;
  for (int i = 0; i < count; ++i) {
    const uint32_t own = kept_by[i];
    grouping.roles[i] = own == kept                                         ? kReducedAll
                        : own == 0                                          ? kReducedNone
                        : grouping.by_column() && own == 1                  ? kReducedInner
                        : grouping.by_column() && own == (kept & ~1u)       ? kReducedOuter
                                                                            : kAbsent;
  }
  return grouping;
}

}  // namespace opsmith
