// One call of a generated kernel while it is made ready: what is known of it, and what its parts share.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/SmallVector.h>

#include "arguments.h"

namespace opsmith {

struct Call {
  const Prepared& prepared;
  const Gathered& given;
  const size_t device;
  const c10::DeviceIndex index;  // of the GPU

  Dimensions shape;  // of all results, before any is summed
  int64_t count = 0;
  c10::SmallVector<at::Tensor, 4> results;
  Walk walk;
  int word_count = 0;
  int64_t words[kMaxWords];  // what the kernel is given

  Call(const Prepared& prepared, const Gathered& given, size_t device)
      : prepared(prepared), given(given), device(device), index(device == 0 ? 0 : given.device->index()) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  int reads() const { return static_cast<int>(prepared.reads.size()); }
  bool is_summed(int result) const { return results[result].numel() != count; }
  int itemsize(int operand) const {
    return operand < reads() ? prepared.reads[operand].itemsize : prepared.results[operand - reads()].itemsize;
  }
  int64_t address(int result) const { return reinterpret_cast<int64_t>(results[result].mutable_data_ptr()); }
  void add_word(int64_t word) { words[word_count++] = word; }
  void add_size(const Layout& layout, int64_t size) { add_word(device == 0 || layout.wide ? size : size_word(size)); }

  at::Tensor empty(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) const {
    if (device == 0) return at::Tensor(at::detail::empty_strided_cpu(sizes, strides, dtype));
    return at::_ops::empty_strided::redispatch(
        c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::fromIntArrayRefKnownNonNegative(sizes),
        c10::fromIntArrayRefKnownNonNegative(strides), dtype, c10::kStrided, *given.device, false);
  }

  // What the text of a GPU's kernel depends on besides its modes; `inner` elements are contiguous in every row.
  void find_width(Layout& layout, int64_t inner) const {
    if (device == 0) return;
    layout.index = static_cast<uint8_t>(index);
    layout.vector = static_cast<uint8_t>(vector(layout.modes, inner));
    layout.wide = wide();
  }

  void launch_on_gpu(const Loaded& kernel, Path path, int64_t blocks) {
    const CudaTuning& tuning = Devices::get().cuda;
    const int64_t threads = path == kStream    ? tuning.stream_threads
                            : path == kSegment ? tuning.segment_threads
                                               : tuning.column_threads;
    launch_on_gpu(kernel, {blocks, 1, threads}, words);
  }
  void launch_on_gpu(const Loaded& kernel, const Grid& grid, int64_t* its_words) const {
    CudaLauncher::get().launch(kernel.function, grid, its_words, index, Devices::get().overlaps_on(index));
  }

 private:
  // Elements that can be moved at once: what is contiguous must be aligned in every row.
  int64_t vector(const uint8_t* modes, int64_t inner) const {
    int64_t least = 0;
    for (int k = 0; k < walk.operands; ++k) {
      if (modes[k] != kLinear && modes[k] != kContiguous) continue;
      least = least == 0 ? itemsize(k) : std::min<int64_t>(least, itemsize(k));
    }
    const int64_t width = least == 0 ? 1 : vector_width(least);
    if (inner % width != 0) return 1;
    for (int k = 0; k < walk.operands; ++k) {
      if (modes[k] != kLinear && modes[k] != kContiguous) continue;
      if (words[k] % std::min<int64_t>(16, width * itemsize(k)) != 0) return 1;
      for (int d = 1; d < walk.sizes.count; ++d) {
        if (walk.strides[k][d] % width != 0) return 1;
      }
    }
    return width;
  }

  // Whether an index or an offset passes 32 bits.
  bool wide() const {
    constexpr int64_t limit = INT32_MAX;
    if (count > limit) return true;
    for (int k = 0; k < walk.operands; ++k) {
      int64_t reach = 0;
      for (int d = 0; d < walk.sizes.count; ++d) reach += (walk.sizes.at[d] - 1) * walk.strides[k][d];
      if (reach > limit) return true;
    }
    return false;
  }
};

// Whether the memory between the first and the last element of two tensors has bytes in common.
inline bool ranges_meet(const at::Tensor& first, const at::Tensor& second) {
  if (!first.is_alias_of(second)) return false;
  const auto range = [](const at::Tensor& tensor) {
    int64_t reach = 0;
    for (int64_t d = 0; d < tensor.dim(); ++d) reach += (tensor.size(d) - 1) * tensor.stride(d);
    const char* begin = static_cast<const char*>(tensor.const_data_ptr());
    return std::make_pair(begin, begin + (reach + 1) * static_cast<int64_t>(tensor.element_size()));
  };
  const auto [begin, end] = range(first);
  const auto [other_begin, other_end] = range(second);
  return begin < other_end && other_begin < end;
}

// op.py's _can_write: whether a kernel can write straight into the tensors it was given. They must be of the right
// shape and dtype, hold no element twice, and share no memory with each other, nor with an input but as the very same
// tensor; one that is changed in place not even so, for what the other argument then holds is for Python to refuse.
inline bool can_write(const Call& call) {
  const Prepared& prepared = call.prepared;
  for (size_t i = 0; i < prepared.outs.size(); ++i) {
    const at::Tensor* out = call.given.tensors[prepared.outs[i]];
    if (out == nullptr || out->sizes() != call.shape.ref() || out->scalar_type() != prepared.results[i].dtype) {
      return false;
    }
    for (int64_t d = 0; d < out->dim(); ++d) {
      if (out->stride(d) == 0 && out->size(d) > 1) return false;
    }
    const bool in_place = prepared.outs[i] < prepared.inputs;
    for (int slot = 0; slot < prepared.inputs; ++slot) {
      const at::Tensor* tensor = call.given.tensors[slot];
      if (tensor == nullptr || tensor == out || !ranges_meet(*out, *tensor)) continue;
      const bool same = tensor->const_data_ptr() == out->const_data_ptr() && tensor->strides() == out->strides() &&
                        tensor->sizes() == out->sizes();
      if (!same || in_place) return false;
    }
    for (size_t other = 0; other < i; ++other) {
      if (ranges_meet(*out, *call.given.tensors[prepared.outs[other]])) return false;
    }
  }
  return true;
}

}  // namespace opsmith
