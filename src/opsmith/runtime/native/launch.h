// One call of a generated kernel: its shape, its results, its walk, its launch. The twin of pointwise/launch.py.
#pragma once

#include "reduce.h"

namespace opsmith {

class Launch {
 public:
  Launch(const Prepared& prepared, const Gathered& given, const c10::IValue* arguments, size_t device)
      : call_(prepared, given, device), arguments_(arguments) {}

  // False: the twin must take the call, and whatever has been written will be written again.
  bool run() {
    if (!find_shape() || !find_words()) return false;
    if (call_.count != 0 && everything_is_linear()) {
      return find_results([&](c10::IntArrayRef, at::ScalarType dtype) { return contiguous(dtype); }) && stream_linear();
    }
    if (!find_order() || !find_results([&](c10::IntArrayRef sizes, at::ScalarType dtype) {
          return call_.empty(sizes, dense_strides(sizes, order_, call_.shape.count).ref(), dtype);
        })) {
      return false;
    }
    if (call_.count == 0) {
      for (at::Tensor& result : call_.results) result.zero_();  // The sum of no elements.
      return true;
    }
    find_walk();
    return sums_ ? Reduction(call_).run() : stream();
  }

  // Puts the results in the place of the arguments.
  void give(torch::jit::Stack& stack, size_t arguments) {
    stack.resize(stack.size() - arguments);
    if (!call_.prepared.outs.empty()) return;
    if (call_.prepared.returns_list) {
      c10::List<at::Tensor> list;
      list.reserve(call_.results.size());
      for (at::Tensor& result : call_.results) list.push_back(std::move(result));
      stack.emplace_back(std::move(list));
      return;
    }
    for (at::Tensor& result : call_.results) stack.emplace_back(std::move(result));
  }

 private:
  const at::Tensor* tensor(int slot) const { return call_.given.tensors[slot]; }

  bool find_shape() {
    bool first = true;
    for (const std::vector<int>& group : call_.prepared.shaped_by) {
      Dimensions shape;
      for (int slot : group) {
        if (!broadcast(shape, tensor(slot)->sizes())) return false;
      }
      if (!first && !(shape == call_.shape)) return false;
      if (first) call_.shape = shape;
      first = false;
    }
    call_.count = call_.shape.product();
    return true;
  }

  // The addresses of what is read, and the scalars.
  bool find_words() {
    for (const Prepared::Read& read : call_.prepared.reads) {
      const void* address = tensor(read.slot)->const_data_ptr();
      if (address == nullptr && call_.count != 0) return false;  // A shape that stands for a tensor that was not kept.
      call_.add_word(reinterpret_cast<int64_t>(address));
    }
    call_.word_count = call_.prepared.operands();
    for (const Prepared::Scalar& scalar : call_.prepared.scalars) {
      const c10::IValue& value = arguments_[scalar.position];
      if (scalar.floating ? !value.isDouble() : !value.isInt()) return false;
      int64_t word = 0;
      if (scalar.floating) {
        const double number = value.toDouble();
        std::memcpy(&word, &number, sizeof word);
      } else {
        word = value.toInt();
      }
      call_.add_word(word);
    }
    return true;
  }

  // --- order and results ---------------------------------------------------------------------------------------

  // Whether every tensor is of the full shape and contiguous: the common case, for which there is no walk to find.
  bool everything_is_linear() const {
    bool any_shape = false;
    for (int slot = 0; slot < call_.given.count; ++slot) {
      if (tensor(slot) == nullptr) continue;
      if (tensor(slot)->sizes() != call_.shape.ref()) return false;
      if (tensor(slot)->is_contiguous()) continue;
      if (slot >= call_.prepared.inputs || !is_bare_shape(*tensor(slot))) return false;
      any_shape = true;
    }
    if (!any_shape) return true;
    // What has no strides leaves the order to the others, odd strides along dimensions of size one included.
    const Dimensions natural = natural_strides();
    for (int slot = 0; slot < call_.given.count; ++slot) {
      if (tensor(slot) == nullptr || is_bare_shape(*tensor(slot))) continue;
      if (tensor(slot)->strides() != natural.ref()) return false;
    }
    return true;
  }

  // Whether a tensor stands for one that was not kept.
  static bool is_bare_shape(const at::Tensor& tensor) {
    for (int64_t stride : tensor.strides()) {
      if (stride != 0) return false;
    }
    return tensor.storage().nbytes() == 0;
  }

  Dimensions natural_strides() const {
    Dimensions order;
    for (int d = call_.shape.count - 1; d >= 0; --d) order.push(d);
    return dense_strides(call_.shape.ref(), order, call_.shape.count);
  }

  at::Tensor contiguous(at::ScalarType dtype) const {
    if (call_.device == 0) return at::Tensor(at::detail::empty_cpu(call_.shape.ref(), dtype));
    return call_.empty(call_.shape.ref(), natural_strides().ref(), dtype);
  }

  bool find_order() {
    Strided tensors[kMaxSlots];
    int present = 0;
    int candidates = 0;
    for (int slot = 0; slot < call_.prepared.inputs; ++slot) candidates += tensor(slot) != nullptr;
    const bool some_unused = call_.reads() < candidates;  // which may have any shape
    for (int slot = 0; slot < call_.prepared.inputs; ++slot) {
      if (tensor(slot) == nullptr || (some_unused && !broadcasts_to(tensor(slot)->sizes(), call_.shape))) continue;
      tensors[present++] = {tensor(slot)->sizes(), tensor(slot)->strides()};
    }
    if (present > kMaxOperands) return false;
    order_ = order_of(call_.shape, tensors, present);
    return true;
  }

  // The results: what make(sizes, dtype) gives, or the tensors to write into.
  template <typename Make>
  bool find_results(Make&& make) {
    if (!call_.prepared.outs.empty()) {
      if (!can_write(call_)) return false;
      for (int slot : call_.prepared.outs) call_.results.push_back(*tensor(slot));
    } else {
      for (const Prepared::Result& result : call_.prepared.results) {
        const c10::IntArrayRef sizes = result.like < 0 ? call_.shape.ref() : tensor(result.like)->sizes();
        if (!broadcasts_to(sizes, call_.shape)) return false;  // The gradient of what the function does not use.
        call_.results.push_back(make(sizes, result.dtype));
      }
    }
    for (int i = 0; i < static_cast<int>(call_.results.size()); ++i) {
      call_.words[call_.reads() + i] = call_.address(i);
      sums_ |= call_.is_summed(i);
    }
    return true;
  }

  void find_walk() {
    int64_t expanded[kMaxOperands][kMaxDimensions];
    int operand = 0;
    for (const Prepared::Read& read : call_.prepared.reads) {
      expand({tensor(read.slot)->sizes(), tensor(read.slot)->strides()}, call_.shape, expanded[operand++]);
    }
    for (const at::Tensor& result : call_.results) {
      expand({result.sizes(), result.strides()}, call_.shape, expanded[operand++]);
    }
    merge(call_.shape, order_, expanded, operand, call_.walk);
  }

  // --- without sums --------------------------------------------------------------------------------------------

  bool stream_linear() {
    Walk& walk = call_.walk;
    Layout layout;
    walk.sizes.push(call_.count);
    walk.operands = call_.prepared.operands();
    for (int k = 0; k < walk.operands; ++k) {
      walk.strides[k][0] = call_.count == 1 ? 0 : 1;
      layout.modes[k] = kLinear;
    }
    call_.find_width(layout, 0);
    call_.add_word(call_.count);
    return start(layout);
  }

  bool stream() {
    const Walk& walk = call_.walk;
    Layout layout;
    bool strided = false;
    for (int k = 0; k < walk.operands; ++k) {
      layout.modes[k] = indexed_mode(walk, k);
      strided |= is_strided(layout.modes[k]);
    }
    layout.inner = strided ? static_cast<uint8_t>(walk.sizes.count) : 0;
    call_.find_width(layout, strided ? walk.sizes.at[0] : 0);
    call_.add_word(call_.count);
    if (strided) {
      for (int d = 0; d < walk.sizes.count; ++d) call_.add_size(layout, walk.sizes.at[d]);
      for (int k = 0; k < walk.operands; ++k) {
        if (!is_strided(layout.modes[k])) continue;
        for (int d = 0; d < walk.sizes.count; ++d) call_.add_word(walk.strides[k][d]);
      }
    }
    return start(layout);
  }

  bool start(const Layout& layout) {
    const Loaded* kernel = call_.prepared.find(layout);
    if (kernel == nullptr) return false;
    if (call_.device == 0) {
      launch_on_cpu(kernel->function, call_.count, Devices::get().cpu.grain, call_.words);
    } else {
      const Devices& devices = Devices::get();
      const int64_t blocks =
          stream_blocks(devices.cuda, call_.count, kernel->tiles, devices.multiprocessors_of(call_.index));
      call_.launch_on_gpu(*kernel, kStream, blocks);
    }
    return true;
  }

  Call call_;
  const c10::IValue* arguments_;
  Dimensions order_;
  bool sums_ = false;
};

}  // namespace opsmith
