// One call of a generated kernel without Python: results allocated, launches planned, kernels found and launched. The
// Python fallback does this in generate/launch.py.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/SmallVector.h>

#include "arguments.h"

namespace opsmith {

inline Sizes view_of(c10::IntArrayRef values) { return {values.data(), static_cast<int>(values.size())}; }
inline c10::IntArrayRef array_of(Sizes sizes) { return {sizes.data, static_cast<size_t>(sizes.count)}; }

class GeneratedCall {
 public:
  GeneratedCall(const Prepared& prepared, const Gathered& given, const c10::IValue* arguments, size_t device,
                const Target& target)
      : prepared_(prepared),
        given_(given),
        arguments_(arguments),
        device_(device),
        index_(static_cast<c10::DeviceIndex>(target.index)),
        reads_(prepared.program.reads.size()),
        plan_(prepared.program, target) {}

  // False: Python must run the call. What has been written will be written again.
  bool run() {
    if (!find_shape() || !find_results()) return false;
    if (plan_.count() == 0) {
      for (at::Tensor& result : results_) result.zero_();  // The sum of no elements.
      return true;
    }
    return bind() && launch();
  }

  // Replaces the arguments on the stack by the results.
  void give(torch::jit::Stack& stack, size_t arguments) {
    stack.resize(stack.size() - arguments);
    if (!prepared_.outs.empty()) return;
    if (prepared_.returns_list) {
      c10::List<at::Tensor> list;
      list.reserve(results_.size());
      for (at::Tensor& result : results_) list.push_back(std::move(result));
      stack.emplace_back(std::move(list));
      return;
    }
    for (at::Tensor& result : results_) stack.emplace_back(std::move(result));
  }

 private:
  static constexpr int64_t kSmallScratch = 4096;

  const at::Tensor* tensor(int slot) const { return given_.tensors[slot]; }

  bool find_shape() {
    for (int slot = 0; slot < given_.count; ++slot) {
      Strided& strided = tensors_[slot];
      strided.present = tensor(slot) != nullptr;
      if (!strided.present) continue;
      strided.sizes = view_of(tensor(slot)->sizes());
      strided.strides = view_of(tensor(slot)->strides());
      strided.placeholder = is_placeholder(*tensor(slot));
    }
    return plan_.find_shape(tensors_, given_.count);
  }

  // tensors.py's is_placeholder: a shape in place of a tensor that was not kept.
  static bool is_placeholder(const at::Tensor& tensor) {
    return tensor.numel() != 0 && tensor.storage().nbytes() == 0;
  }

  bool find_results() {
    if (!prepared_.outs.empty()) {
      if (!can_write()) return false;
      for (int slot : prepared_.outs) results_.push_back(*tensor(slot));
      return true;
    }
    for (int i = 0; i < static_cast<int>(prepared_.program.results.size()); ++i) {
      const auto dtype = static_cast<at::ScalarType>(prepared_.program.results[i].dtype);
      const c10::IntArrayRef sizes = array_of(plan_.result_sizes(i));
      if (device_ == 0 && plan_.linear()) {
        results_.push_back(at::Tensor(at::detail::empty_cpu(sizes, dtype)));
      } else {
        results_.push_back(empty(sizes, array_of(plan_.result_strides(i).view()), dtype));
      }
    }
    return true;
  }

  at::Tensor empty(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype) const {
    if (device_ == 0) return at::Tensor(at::detail::empty_strided_cpu(sizes, strides, dtype));
    return at::_ops::empty_strided::redispatch(
        c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::fromIntArrayRefKnownNonNegative(sizes),
        c10::fromIntArrayRefKnownNonNegative(strides), dtype, c10::kStrided, *given_.device, false);
  }

  bool bind() {
    int64_t addresses[kMaxOperands], scalars[kMaxScalars];
    Strided results[kMaxOperands];
    int count = 0;
    for (const Program::Read& read : prepared_.program.reads) {
      const void* address = tensor(read.slot)->const_data_ptr();
      if (address == nullptr) return false;  // A placeholder.
      addresses[count++] = reinterpret_cast<int64_t>(address);
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      addresses[count++] = reinterpret_cast<int64_t>(results_[i].mutable_data_ptr());
      results[i].sizes = view_of(results_[i].sizes());
      results[i].strides = view_of(results_[i].strides());
    }
    count = 0;
    for (const Prepared::Scalar& scalar : prepared_.scalars) {
      const c10::IValue& value = arguments_[scalar.position];
      if (scalar.floating ? !value.isDouble() : !value.isInt()) return false;
      if (scalar.floating) {
        const double number = value.toDouble();
        std::memcpy(&scalars[count++], &number, sizeof number);
      } else {
        scalars[count++] = value.toInt();
      }
    }
    plan_.bind(results, addresses, scalars);
    return true;
  }

  bool launch() {
    const Devices& devices = Devices::get();
    while (const Pass* pass = plan_.next()) {
      const Loaded* kernel = prepared_.kernels.find(pass->layout, static_cast<size_t>(pass->layout_size));
      if (kernel == nullptr) return false;
      for (int i = 0; i < pass->combine_count; ++i) {
        if (combine_kernel(pass->combines[i]) == nullptr) return false;
      }
      alignas(64) char small[kSmallScratch];
      at::Tensor large;
      if (pass->scratch_bytes != 0) {
        const bool fits = device_ == 0 && pass->scratch_bytes <= kSmallScratch;
        if (!fits) large = empty({pass->scratch_bytes}, {1}, at::kByte);
        plan_.place(reinterpret_cast<int64_t>(fits ? small : large.mutable_data_ptr()));
      }
      if (device_ == 0) {
        launch_on_cpu(kernel->function, pass->tasks, pass->grain, pass->parameters);
      } else {
        const int64_t blocks = pass->blocks != 0 ? pass->blocks : plan_.blocks_of_stream(kernel->tiles);
        launch_on_gpu(*kernel, {blocks, 1, pass->threads}, pass->parameters);
      }
      for (int i = 0; i < pass->combine_count; ++i) {
        const Combine& combine = pass->combines[i];
        const Loaded& adds = *combine_kernel(combine);
        if (device_ == 0) {
          launch_on_cpu(adds.function, combine.tasks, devices.tuning.cpu_grain, combine.parameters);
        } else {
          launch_on_gpu(adds, {combine.blocks, combine.jobs, devices.tuning.combine_threads}, combine.parameters);
        }
      }
    }
    return true;
  }

  const Loaded* combine_kernel(const Combine& combine) const {
    return Devices::get().combine(device_, index_, combine.dtype, combine.jobs);
  }

  void launch_on_gpu(const Loaded& kernel, const Grid& grid, int64_t* parameters) const {
    CudaLauncher::get().launch(kernel.function, grid, parameters, index_, Devices::get().overlaps_on(index_));
  }

  // --- out= and in place -----------------------------------------------------------------------------------------

  // call.py's _can_write: whether a kernel can write directly into the tensors it was given. They must have the right
  // shape and dtype, hold no element twice, and share no memory with each other, nor with an input unless they are the
  // same tensor; a tensor changed in place not even then, because Python refuses such a call.
  bool can_write() const {
    const int inputs = prepared_.program.inputs;
    for (size_t i = 0; i < prepared_.outs.size(); ++i) {
      const at::Tensor* out = tensor(prepared_.outs[i]);
      const auto dtype = static_cast<at::ScalarType>(prepared_.program.results[i].dtype);
      if (out == nullptr || out->sizes() != array_of(plan_.shape()) || out->scalar_type() != dtype) return false;
      for (int64_t d = 0; d < out->dim(); ++d) {
        if (out->stride(d) == 0 && out->size(d) > 1) return false;
      }
      const bool in_place = prepared_.outs[i] < inputs;
      for (int slot = 0; slot < inputs; ++slot) {
        const at::Tensor* other = tensor(slot);
        if (other == nullptr || other == out || !ranges_meet(*out, *other)) continue;
        const bool same = other->const_data_ptr() == out->const_data_ptr() && other->strides() == out->strides() &&
                          other->sizes() == out->sizes();
        if (!same || in_place) return false;
      }
      for (size_t other = 0; other < i; ++other) {
        if (ranges_meet(*out, *tensor(prepared_.outs[other]))) return false;
      }
    }
    return true;
  }

  // Whether the memory between the first and the last element of two tensors has bytes in common.
  static bool ranges_meet(const at::Tensor& first, const at::Tensor& second) {
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

  const Prepared& prepared_;
  const Gathered& given_;
  const c10::IValue* arguments_;
  const size_t device_;
  const c10::DeviceIndex index_;
  const size_t reads_;
  Strided tensors_[kMaxSlots];
  Plan plan_;
  c10::SmallVector<at::Tensor, 4> results_;
};

}  // namespace opsmith
