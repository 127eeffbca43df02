// How a call reaches a generated kernel without Python.
#pragma once

#include <c10/core/DeviceGuard.h>

#include "arguments.h"
#include "entry.h"
#include "generated_call.h"

namespace opsmith {

// Registered on CPU and CUDA for an operator with generated kernels. A call of a kind not seen before goes to Python,
// which compiles its kernel, runs it and publishes it. If the author has written a kernel, that one runs.
class GeneratedEntry final : public c10::OperatorKernel {
 public:
  GeneratedEntry(std::shared_ptr<Record> record, size_t device, std::shared_ptr<Generated> generated)
      : generated_(std::move(generated)), written_(std::move(record), device) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const Record& record = *generated_->record;
    if (!generated_->active.load(std::memory_order_relaxed)) {
      written_(op, keys, stack);
      return;
    }
    const size_t count = record.arguments.size();
    const c10::IValue* arguments = stack->data() + (stack->size() - count);
    Gathered given;
    const bool known = given.gather(record, generated_->statics, arguments);
    if (known && launched(given, arguments, *stack)) return;
    std::optional<Pending> pending;
    if (known) pending.emplace(generated_, &given.key);
    record.call_python(stack);
  }

 private:
  bool launched(const Gathered& given, const c10::IValue* arguments, torch::jit::Stack& stack) {
    const Prepared* const* prepared = generated_->by_arguments.find(given.key.bytes, given.key.size);
    if (prepared == nullptr) return false;
    const std::optional<Target> target = Devices::get().target(generated_->device, given.device->index());
    if (!target.has_value()) return false;
    std::optional<c10::Device> gpu;
    if (generated_->device != 0) gpu = given.device;
    const c10::OptionalDeviceGuard on_their_device(gpu);  // of several GPUs, the tensors' own
    const AtenCall given_call(given, arguments, generated_->device);
    GeneratedCall<AtenCall> call(**prepared, given_call, *target);
    if (!call.run()) return false;
    stack.resize(stack.size() - generated_->record->arguments.size());
    if ((*prepared)->outs.empty()) push(call.results(), (*prepared)->returns_list, stack);
    return true;
  }

  static void push(AtenCall::Tensors& results, bool as_list, torch::jit::Stack& stack) {
    if (!as_list) {
      for (at::Tensor& result : results) stack.emplace_back(std::move(result));
      return;
    }
    c10::List<at::Tensor> list;
    list.reserve(results.size());
    for (at::Tensor& result : results) list.push_back(std::move(result));
    stack.emplace_back(std::move(list));
  }

  std::shared_ptr<Generated> generated_;
  EntryKernel written_;
};

}  // namespace opsmith
