// Rows of numbers from Python: the description of a program, or a test's question.
#pragma once

#include "generated.h"

namespace opsmith {

// Reads what Python has written into a row of numbers.
class Numbers {
 public:
  Numbers(const int64_t* numbers, size_t count) : next_(numbers), end_(numbers + count) {}

  int64_t one() {
    TORCH_CHECK(next_ != end_, "a row of numbers is too short");
    return *next_++;
  }
  int small() { return static_cast<int>(one()); }
  bool flag() { return one() != 0; }
  // A count, then `each` so often.
  template <typename Each>
  void repeat(Each&& each) {
    for (int64_t left = one(); left > 0; --left) each();
  }
  c10::IntArrayRef several(int64_t count) {
    TORCH_CHECK(end_ - next_ >= count, "a row of numbers is too short");
    const c10::IntArrayRef found(next_, static_cast<size_t>(count));
    next_ += count;
    return found;
  }

 private:
  const int64_t* next_;
  const int64_t* end_;
};

// What pointwise/native.py says of a program.
inline std::unique_ptr<Prepared> read_prepared(Numbers numbers) {
  auto prepared = std::make_unique<Prepared>();
  numbers.repeat([&] {
    const int slot = numbers.small();
    prepared->reads.push_back({slot, numbers.small()});
  });
  numbers.repeat([&] {
    const auto dtype = static_cast<at::ScalarType>(numbers.small());
    prepared->results.push_back({dtype, numbers.small(), static_cast<int>(c10::elementSize(dtype))});
  });
  numbers.repeat([&] {
    const int position = numbers.small();
    prepared->scalars.push_back({position, numbers.flag()});
  });
  numbers.repeat([&] {
    std::vector<int>& group = prepared->shaped_by.emplace_back();
    numbers.repeat([&] { group.push_back(numbers.small()); });
  });
  prepared->inputs = numbers.small();
  numbers.repeat([&] { prepared->outs.push_back(numbers.small()); });
  prepared->returns_list = numbers.flag();
  return prepared;
}

// walk.h on tensors and results that a test has made up; -1 where they do not broadcast.
inline int64_t probe_walk(Numbers numbers, int64_t* written) {
  Strided tensors[kMaxOperands];
  int count = 0;
  Dimensions shape;
  bool fits = true;
  numbers.repeat([&] {
    const int64_t ndim = numbers.one();
    const c10::IntArrayRef sizes = numbers.several(ndim);
    tensors[count++] = {sizes, numbers.several(ndim)};
    fits = fits && broadcast(shape, sizes);
  });
  if (!fits) return -1;
  int64_t* const begin = written;
  const auto write = [&](c10::IntArrayRef values) {
    *written++ = static_cast<int64_t>(values.size());
    for (int64_t value : values) *written++ = value;
  };
  const Dimensions order = order_of(shape, tensors, count);
  write(shape.ref());
  write(order.ref());
  int64_t expanded[kMaxOperands][kMaxDimensions];
  const int inputs = count;
  for (int i = 0; i < inputs; ++i) expand(tensors[i], shape, expanded[i]);
  int waiting[kMaxOperands];
  int left = 0;
  numbers.repeat([&] {
    const c10::IntArrayRef sizes = numbers.several(numbers.one());
    const Dimensions strides = dense_strides(sizes, order, shape.count);
    write(strides.ref());
    expand({sizes, strides.ref()}, shape, expanded[count]);
    if (c10::multiply_integers(sizes) != shape.product()) waiting[left++] = count;
    ++count;
  });
  Walk walk;
  merge(shape, order, expanded, count, walk);
  write(walk.sizes.ref());
  for (int k = 0; k < count; ++k) write({walk.strides[k], static_cast<size_t>(walk.sizes.count)});
  for (int k = 0; k < count; ++k) *written++ = indexed_mode(walk, k);
  while (left > 0) {
    const Grouping grouping = group(walk, waiting, left);
    *written++ = grouping.kept;
    int still = 0;
    for (int i = 0; i < left; ++i) {
      *written++ = grouping.roles[i];
      if (grouping.roles[i] == kAbsent) waiting[still++] = waiting[i];
    }
    left = still;
  }
  return written - begin;
}

}  // namespace opsmith
