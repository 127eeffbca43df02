// Sizes and strides: broadcasting, the order of dimensions, and the layout of results. Strides count elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace opsmith {

constexpr int kMaxDimensions = 16;  // The reference runs for tensors with more.
constexpr int kMaxOperands = 64;    // The tensors that one kernel reads and writes.

// A view of sizes or strides.
struct Sizes {
  const int64_t* data = nullptr;
  int count = 0;

  int64_t operator[](int d) const { return data[d]; }
  bool operator==(const Sizes& other) const {
    return count == other.count && std::equal(data, data + count, other.data);
  }
};

// Sizes, strides or dimensions that the planner computes. Only the first `count` are initialised.
struct Dimensions {
  int count = 0;
  int64_t at[kMaxDimensions];

  void push(int64_t value) { at[count++] = value; }
  Sizes view() const { return {at, count}; }
  int64_t product() const {
    int64_t product = 1;
    for (int d = 0; d < count; ++d) product *= at[d];
    return product;
  }
};

struct Strided {
  Sizes sizes;
  Sizes strides;
  bool present = true;
  bool placeholder = false;  // only the shape of a tensor whose values were not kept
};

// Broadcasts `shape` with `sizes`; false if they do not broadcast.
inline bool broadcast(Dimensions& shape, Sizes sizes) {
  if (sizes.count > kMaxDimensions) return false;
  if (sizes.count > shape.count) {
    const int added = sizes.count - shape.count;
    std::copy_backward(shape.at, shape.at + shape.count, shape.at + sizes.count);
    std::fill(shape.at, shape.at + added, 1);
    shape.count = sizes.count;
  }
  int64_t* last = shape.at + shape.count - sizes.count;
  for (int d = 0; d < sizes.count; ++d) {
    if (last[d] == 1) {
      last[d] = sizes[d];
    } else if (sizes[d] != 1 && sizes[d] != last[d]) {
      return false;
    }
  }
  return true;
}

// Whether a tensor of these sizes broadcasts to `shape` without widening it.
inline bool broadcasts_to(Sizes sizes, Sizes shape) {
  const int missing = shape.count - sizes.count;
  if (missing < 0) return false;
  for (int d = 0; d < sizes.count; ++d) {
    if (sizes[d] != 1 && sizes[d] != shape[missing + d]) return false;
  }
  return true;
}

// The strides of a tensor expanded to `shape`: zero where it is repeated.
inline void expand(const Strided& tensor, Sizes shape, int64_t* strides) {
  const int missing = shape.count - tensor.sizes.count;
  for (int d = 0; d < missing; ++d) strides[d] = 0;
  for (int d = missing; d < shape.count; ++d) {
    const bool repeated = tensor.sizes[d - missing] == 1 && shape[d] != 1;
    strides[d] = repeated ? 0 : tensor.strides[d - missing];
  }
}

// Whether a tensor fills its memory without gaps, its last dimension innermost.
inline bool is_contiguous(const Strided& tensor) {
  int64_t expected = 1;
  for (int d = tensor.sizes.count - 1; d >= 0; --d) {
    if (tensor.sizes[d] == 1) continue;
    if (tensor.strides[d] != expected) return false;
    expected *= tensor.sizes[d];
  }
  return true;
}

// Dimensions from the last to the first.
inline Dimensions natural_order(int count) {
  Dimensions order;
  for (int d = count - 1; d >= 0; --d) order.push(d);
  return order;
}

// The dimensions of `shape` from the innermost to the outermost, as TensorIterator orders them for these tensors, which
// all broadcast to it.
inline Dimensions order_of(Sizes shape, const Strided* tensors, int count) {
  Dimensions order = natural_order(shape.count);
  const bool contiguous = std::all_of(tensors, tensors + count, [&](const Strided& tensor) {
    return tensor.sizes == shape && is_contiguous(tensor);
  });
  if (shape.count < 2 || contiguous) return order;

  int64_t strides[kMaxOperands][kMaxDimensions];
  for (int i = 0; i < count; ++i) expand(tensors[i], shape, strides[i]);
  // 1 if `first` must lie outside of `second`, -1 if inside, 0 if no tensor decides.
  const auto compare = [&](int64_t first, int64_t second) {
    for (int i = 0; i < count; ++i) {
      const int64_t a = strides[i][first], b = strides[i][second];
      if (a == 0 || b == 0) continue;
      if (a != b) return a < b ? -1 : 1;
      if (shape[first] > shape[second]) return 1;
    }
    return 0;
  };
  for (int index = 1; index < shape.count; ++index) {
    int moving = index;
    for (int other = index - 1; other >= 0; --other) {
      const int comparison = compare(order.at[other], order.at[moving]);
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

// The strides of a result of these sizes without gaps, in the order of the dimensions that it broadcasts to.
inline Dimensions dense_strides(Sizes sizes, const Dimensions& order) {
  const int missing = order.count - sizes.count;
  Dimensions strides;
  for (int d = 0; d < sizes.count; ++d) strides.push(1);
  int64_t step = 1;
  for (int i = 0; i < order.count; ++i) {
    const int d = static_cast<int>(order.at[i]) - missing;
    if (d < 0) continue;
    strides.at[d] = step;
    if (sizes[d] > 1) step *= sizes[d];
  }
  return strides;
}

}  // namespace opsmith
