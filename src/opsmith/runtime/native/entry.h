// How a call reaches a C++ kernel on its device without Python; execution.py does the same in Python.
#pragma once

#include <c10/core/DeviceGuard.h>

#include "../../include/opsmith/decline.h"
#include "record.h"

namespace opsmith {

// Registered on CPU and CUDA. These calls go to Python: a kernel that is not checked yet, tensors on several devices, a
// strided tensor that is written in place or that determines the layout of results, a call that the kernel declines.
class EntryKernel final : public c10::OperatorKernel {
 public:
  EntryKernel(std::shared_ptr<Record> record, size_t device) : record_(std::move(record)), device_(device) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const Kernel* kernel = record_->kernels[device_].get();
    const Survey found = kernel == nullptr ? Survey{} : survey(*kernel, *stack);
    if (!found.direct) {
      record_->call_python(stack);
      return;
    }
    if (!kernel->may_decline) {
      run(*kernel, found, stack);
      return;
    }
    const size_t first = stack->size() - record_->arguments.size();
    const torch::jit::Stack given(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
    try {
      run(*kernel, found, stack);
      return;
    } catch (const c10::Error& error) {
      if (error.msg().find(detail::kDeclined) == std::string::npos) throw;
    }
    stack->resize(first);
    stack->insert(stack->end(), given.begin(), given.end());
    record_->call_python(stack);
  }

 private:
  struct Survey {
    bool direct = false;     // whether the kernel can be called from here
    bool contiguous = true;  // whether its tensors have the layout that it takes
    std::optional<c10::Device> device;  // the GPU they are on
  };

  void run(const Kernel& kernel, const Survey& found, torch::jit::Stack* stack) {
    if (!found.contiguous) make_contiguous(kernel, *stack);
    if (!kernel.positions.empty()) select(kernel, *stack);
    // torch functions that a kernel calls keep their dtypes, also inside an autocast region.
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const c10::OptionalDeviceGuard on_their_device(found.device);  // of several GPUs, the tensors' own
    kernel.operator_handle.callBoxed(stack);
  }

  Survey survey(const Kernel& kernel, const torch::jit::Stack& stack) const {
    Survey found{/*direct=*/true};
    std::optional<c10::Device> device;
    for_each_tensor(*record_, stack, [&](size_t position, const at::Tensor& tensor) {
      if (!device.has_value()) device = tensor.device();
      found.direct &= *device == tensor.device();
      if (!kernel.contiguous || tensor.is_contiguous()) return;
      found.contiguous = false;
      found.direct &= !record_->arguments[position].mutated && !kernel.keeps_layout;
    });
    if (device.has_value() && device->is_cuda()) found.device = device;
    return found;
  }

  void make_contiguous(const Kernel& kernel, torch::jit::Stack& stack) {
    std::vector<bool> wanted(record_->arguments.size(), kernel.positions.empty());
    for (size_t position : kernel.positions) wanted[position] = true;
    replace_tensors(*record_, stack, [&](size_t position, const at::Tensor& tensor) {
      return wanted[position] ? tensor.contiguous() : tensor;
    });
  }

  void select(const Kernel& kernel, torch::jit::Stack& stack) {
    const size_t first = stack.size() - record_->arguments.size();
    std::vector<c10::IValue> chosen;
    chosen.reserve(kernel.positions.size());
    for (size_t position : kernel.positions) chosen.push_back(std::move(stack[first + position]));
    stack.resize(first);
    for (c10::IValue& value : chosen) stack.push_back(std::move(value));
  }

  std::shared_ptr<Record> record_;
  size_t device_;
};

}  // namespace opsmith
