// One call of a generated kernel: results allocated, launches planned, kernels found and launched. The Python fallback
// does this in generate/launch.py. `Call` gives the tensors and values of the call, and what torch's API in use offers:
// AtenCall (arguments.h) in the C++ runtime, StableCall (shipping/library) in shipped libraries.
#pragma once

#include "kernels.h"

namespace opsmith {

template <typename Call>
class GeneratedCall {
  using Tensor = typename Call::Tensor;

 public:
  GeneratedCall(const Prepared& prepared, const Call& call, const Target& target)
      : prepared_(prepared), call_(call), index_(static_cast<int>(target.index)), plan_(prepared.program, target) {}

  // False: a kernel is missing, or one kernel cannot compute the call. What has been written will be written again.
  bool run() {
    if (!find_shape() || !find_results()) return false;
    if (plan_.count() == 0) {
      for (Tensor& result : results_) Call::zero(result);  // The sum of no elements.
      return true;
    }
    return bind() && launch();
  }

  // With out= and in place, the tensors that were given.
  typename Call::Tensors& results() { return results_; }

 private:
  static constexpr int64_t kSmallScratch = 4096;
  static constexpr int kByte = 0;  // torch.uint8

  bool find_shape() {
    for (int slot = 0; slot < call_.count(); ++slot) {
      const Tensor* tensor = call_.tensor(slot);
      if (tensor != nullptr) {
        tensors_[slot] = Call::layout_of(*tensor);
        tensors_[slot].placeholder = Call::is_placeholder(*tensor);
      }
      tensors_[slot].present = tensor != nullptr;
    }
    return plan_.find_shape(tensors_, call_.count());
  }

  bool find_results() {
    if (!prepared_.outs.empty()) {
      if (!can_write()) return false;
      for (int slot : prepared_.outs) results_.push_back(*call_.tensor(slot));
      return true;
    }
    for (int i = 0; i < static_cast<int>(prepared_.program.results.size()); ++i) {
      const int dtype = prepared_.program.results[i].dtype;
      if (plan_.linear() && call_.device() == 0) {
        results_.push_back(call_.empty_on_cpu(plan_.shape(), dtype));
      } else {
        const Dimensions sizes = plan_.result_sizes(i), strides = plan_.result_strides(i);
        results_.push_back(call_.empty(sizes.view(), strides.view(), dtype));
      }
    }
    return true;
  }

  bool bind() {
    int64_t addresses[kMaxOperands], scalars[kMaxScalars];
    Strided results[kMaxOperands];
    int count = 0;
    for (const Program::Read& read : prepared_.program.reads) {
      const void* address = Call::data(*call_.tensor(read.slot));
      if (address == nullptr) return false;  // A placeholder.
      addresses[count++] = reinterpret_cast<int64_t>(address);
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      addresses[count++] = reinterpret_cast<int64_t>(Call::mutable_data(results_[i]));
      results[i] = Call::layout_of(results_[i]);
    }
    count = 0;
    for (const Prepared::Scalar& scalar : prepared_.scalars) {
      int64_t& value = scalars[count++];
      if (scalar.is_size()) {
        value = 0;  // the plan knows it
      } else if (!call_.read(scalar, value)) {
        return false;
      }
    }
    return plan_.bind(results, addresses, scalars);
  }

  bool launch() {
    const Devices& devices = Devices::get();
    const bool on_cpu = call_.device() == 0;
    while (const Pass* pass = plan_.next()) {
      const Loaded* kernel = prepared_.kernels.find(pass->layout, static_cast<size_t>(pass->layout_size));
      if (kernel == nullptr) return false;
      for (int i = 0; i < pass->combine_count; ++i) {
        if (combine_kernel(pass->combines[i]) == nullptr) return false;
      }
      alignas(64) char small[kSmallScratch];
      std::optional<Tensor> large;
      if (pass->scratch_bytes != 0) {
        const bool fits = on_cpu && pass->scratch_bytes <= kSmallScratch;
        const int64_t one = 1;
        if (!fits) large = call_.empty({&pass->scratch_bytes, 1}, {&one, 1}, kByte);
        plan_.place(reinterpret_cast<int64_t>(fits ? small : Call::mutable_data(*large)));
      }
      if (on_cpu) {
        launch_on_cpu(kernel->function, pass->tasks, pass->grain, pass->parameters);
        if (plan_.refused()) return false;
      } else {
        const int64_t blocks = pass->blocks != 0 ? pass->blocks : plan_.blocks_of_stream(kernel->tiles);
        launch_on_gpu(*kernel, {blocks, 1, pass->threads}, pass->parameters);
      }
      for (int i = 0; i < pass->combine_count; ++i) {
        const Combine& combine = pass->combines[i];
        const Loaded& adds = *combine_kernel(combine);
        if (on_cpu) {
          launch_on_cpu(adds.function, combine.tasks, devices.tuning.cpu_grain, combine.parameters);
        } else {
          launch_on_gpu(adds, {combine.blocks, combine.jobs, devices.tuning.combine_threads}, combine.parameters);
        }
      }
    }
    return true;
  }

  const Loaded* combine_kernel(const Combine& combine) const {
    return Devices::get().combine(call_.device(), index_, combine.dtype, combine.jobs);
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
      const Tensor* out = call_.tensor(prepared_.outs[i]);
      if (out == nullptr || Call::dtype(*out) != prepared_.program.results[i].dtype) return false;
      const Strided& layout = tensors_[prepared_.outs[i]];
      if (!(layout.sizes == plan_.result_sizes(static_cast<int>(i)).view())) return false;
      for (int d = 0; d < layout.sizes.count; ++d) {
        if (layout.strides[d] == 0 && layout.sizes[d] > 1) return false;
      }
      const bool in_place = prepared_.outs[i] < inputs;
      for (int slot = 0; slot < inputs; ++slot) {
        const Tensor* other = call_.tensor(slot);
        if (other == nullptr || other == out || !ranges_meet(prepared_.outs[i], slot)) continue;
        if (prepared_.program.rows.dimensions != 0) return false;  // A row is read several times.
        const bool same = Call::data(*other) == Call::data(*out) && tensors_[slot].strides == layout.strides &&
                          tensors_[slot].sizes == layout.sizes;
        if (!same || in_place) return false;
      }
      for (size_t other = 0; other < i; ++other) {
        if (ranges_meet(prepared_.outs[i], prepared_.outs[other])) return false;
      }
    }
    return true;
  }

  // Whether the memory between the first and the last element of two tensors has bytes in common.
  bool ranges_meet(int first, int second) const {
    if (!Call::share_storage(*call_.tensor(first), *call_.tensor(second))) return false;
    const auto range = [this](int slot) {
      const Strided& layout = tensors_[slot];
      int64_t reach = 0;
      for (int d = 0; d < layout.sizes.count; ++d) reach += (layout.sizes[d] - 1) * layout.strides[d];
      const char* begin = static_cast<const char*>(Call::data(*call_.tensor(slot)));
      return std::make_pair(begin, begin + (reach + 1) * Call::itemsize(*call_.tensor(slot)));
    };
    const auto [begin, end] = range(first);
    const auto [other_begin, other_end] = range(second);
    return begin < other_end && other_begin < end;
  }

  const Prepared& prepared_;
  const Call& call_;
  const int index_;
  Strided tensors_[kMaxSlots];
  Plan plan_;
  typename Call::Tensors results_;
};

}  // namespace opsmith
