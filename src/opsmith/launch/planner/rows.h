// The shapes of a row program: every tensor with the dimensions of the full shape, and its role in the loops.
#pragma once

#include "loops.h"
#include "program.h"
#include "tuning.h"

namespace opsmith {

constexpr int kMaxSqueezed = 16;  // slots without the row's dimensions

// Tensors as if they had the row's dimensions, of size one. The Strided refer to this object.
class Alignment {
 public:
  Alignment() = default;
  Alignment(const Alignment&) = delete;
  Alignment& operator=(const Alignment&) = delete;

  // False: too many dimensions or tensors.
  bool align(const Program::Rows& rows, Strided& tensor) {
    if (count_ == kMaxSqueezed) return false;
    Dimensions& sizes = sizes_[count_];
    Dimensions& strides = strides_[count_++];
    sizes.count = strides.count = 0;
    // From the last dimension on: size one along the row, else the tensor's next.
    int64_t reversed_sizes[kMaxDimensions], reversed_strides[kMaxDimensions];
    int left = tensor.sizes.count, count = 0;
    for (int bit = 0; left > 0 || rows.dimensions >> bit != 0; ++bit) {
      if (count == kMaxDimensions) return false;
      const bool along = (rows.dimensions >> bit & 1) != 0;
      if (!along && left == 0) break;  // the rest is broadcast
      reversed_sizes[count] = along ? 1 : tensor.sizes[left - 1];
      reversed_strides[count++] = along ? 0 : tensor.strides[left - 1];
      left -= !along;
    }
    for (int d = count - 1; d >= 0; --d) {
      sizes.push(reversed_sizes[d]);
      strides.push(reversed_strides[d]);
    }
    tensor.sizes = sizes.view();
    tensor.strides = strides.view();
    return true;
  }

 private:
  Dimensions sizes_[kMaxSqueezed];
  Dimensions strides_[kMaxSqueezed];
  int count_ = 0;
};

// Whether slots have together the full size where they must.
inline bool covered(const Program::Cover& cover, const Dimensions& own, const Dimensions& shape) {
  if (cover.dimensions == 0) return own.view() == shape.view();
  for (int bit = 0; bit < shape.count; ++bit) {
    if ((cover.dimensions >> bit & 1) == 0) continue;
    if ((bit < own.count ? own.at[own.count - 1 - bit] : 1) != shape.at[shape.count - 1 - bit]) return false;
  }
  return true;
}

// The order of a row program's loops: the row's dimensions innermost, in their own order, if they are the last ones.
inline Dimensions row_order(const Program::Rows& rows, const Dimensions& order) {
  const bool last = (rows.dimensions & (rows.dimensions + 1)) == 0;
  if (!last) return order;
  Dimensions found;
  for (int d = order.count - 1; d >= 0; --d) {
    if (rows.has(d, order.count)) found.push(d);
  }
  for (int i = 0; i < order.count; ++i) {
    if (!rows.has(static_cast<int>(order.at[i]), order.count)) found.push(order.at[i]);
  }
  return found;
}

// The same dimensions, those in `first` before the others.
inline Dimensions brought_forward(const Dimensions& order, const Dimensions& first) {
  Dimensions found = first;
  for (int i = 0; i < order.count; ++i) {
    if (std::find(first.at, first.at + first.count, order.at[i]) == first.at + first.count) found.push(order.at[i]);
  }
  return found;
}

// The dimensions of an order that are along the row, or those that are not.
inline Dimensions part_of(const Program::Rows& rows, const Dimensions& order, bool along) {
  Dimensions found;
  for (int i = 0; i < order.count; ++i) {
    if (rows.has(static_cast<int>(order.at[i]), order.count) == along) found.push(order.at[i]);
  }
  return found;
}

// The order of the dimensions that are not along the row, numbered among themselves.
inline Dimensions squeezed_order(const Program::Rows& rows, const Dimensions& order) {
  Dimensions found = part_of(rows, order, false);
  const Dimensions kept = found;
  for (int i = 0; i < found.count; ++i) {
    found.at[i] = 0;
    for (int j = 0; j < kept.count; ++j) found.at[i] += kept.at[j] < kept.at[i];
  }
  return found;
}

inline bool all_zero(const Loops& loops, int operand) {
  return std::all_of(loops.strides[operand], loops.strides[operand] + loops.sizes.count,
                     [](int64_t stride) { return stride == 0; });
}
// The innermost dimensions that an operand repeats its elements along, if those are all that it does so along; else -1.
inline int repeated_along(const Loops& loops, int operand) {
  int count = 0;
  while (count < loops.sizes.count && loops.strides[operand][count] == 0) ++count;
  for (int d = count; d < loops.sizes.count; ++d) {
    if (loops.strides[operand][d] == 0) return -1;
  }
  return count;
}
// Whether an operand is contiguous from a dimension on, in strides of `step`; then `step` is what comes after it.
inline bool is_dense(const Loops& loops, int operand, int from, int64_t& step) {
  for (int d = from; d < loops.sizes.count; ++d) {
    if (loops.strides[operand][d] != step && loops.sizes.at[d] != 1) return false;
    step *= loops.sizes.at[d];
  }
  return true;
}
inline bool none_zero(const Loops& loops, int operand) {
  for (int d = 0; d < loops.sizes.count; ++d) {
    if (loops.strides[operand][d] == 0 && loops.sizes.at[d] > 1) return false;
  }
  return true;
}

// What only the plan of a row program has.
struct RowPart {
  Strided tensors[kMaxSlots];  // aligned
  Alignment alignment;
  Loops kept;           // the dimensions that are not along the row; the first of them are those that sums are over
  int64_t groups = 1;   // of rows: sums are over the rows of one group
  int64_t segment = 1;  // elements of a row that a sum of a segment is over
  bool sums = false;
  RowTeam team{};       // on a GPU
  int64_t refused = 0;  // written by a kernel
};

}  // namespace opsmith
