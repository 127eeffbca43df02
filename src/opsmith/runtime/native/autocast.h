// What an autocast region does to an operator's floating-point arguments; autocast.py does the same in Python.
#pragma once

#include <ATen/autocast_mode.h>

#include "record.h"

namespace opsmith {

// Registered on AutocastCPU and AutocastCUDA.
class AutocastKernel final : public c10::OperatorKernel {
 public:
  AutocastKernel(std::shared_ptr<Record> record, size_t device) : record_(std::move(record)), device_(device) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const Policy* policy = record_->policies[device_].get();
    const c10::DeviceType type = device_ == 0 ? c10::kCPU : c10::kCUDA;
    if (policy != nullptr && policy->cast != Cast::keep) {
      const at::ScalarType target =
          policy->cast == Cast::lower ? at::autocast::get_autocast_dtype(type) : policy->dtype;
      replace_tensors(*record_, *stack, [&](size_t position, const at::Tensor& tensor) {
        // The tensor itself is written, not a copy.
        const bool as_it_is = tensor.scalar_type() == target || record_->arguments[position].mutated;
        return as_it_is ? tensor : at::autocast::cached_cast(target, tensor, type);
      });
    }
    const c10::DispatchKeySet autocast{c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA};
    c10::impl::ExcludeDispatchKeyGuard guard(autocast);
    op.callBoxed(stack);
  }

 private:
  std::shared_ptr<Record> record_;
  size_t device_;
};

}  // namespace opsmith
