// What the C++ tier knows about one operator, and how it reads the operator's arguments from the dispatcher's stack.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace opsmith {

// One letter per argument, as runtime/native.py writes them.
enum class Kind : char {
  tensor = 't',
  optional_tensor = 'o',
  tensor_list = 'l',
  optional_tensor_list = 'p',
  value = 'v',
};

struct Argument {
  Kind kind;
  bool mutated;  // written in place
  bool inert;    // a tensor, but not a variable of the derivative
};

// Which arguments and results of a forward its backward operator takes. Absent: every input and no result.
struct Saves {
  std::vector<bool> arguments;
  std::vector<bool> results;
  std::vector<int> passthrough;  // for each tensor the result whose gradient is also its own, or < 0; may be empty
};

// A C++ kernel whose first results were correct: `operator_handle` runs it and nothing else.
struct Kernel {
  c10::OperatorHandle operator_handle;
  std::vector<size_t> positions;  // the arguments it takes, in order; empty: all of them
  bool contiguous;                // tensors are made contiguous first
  bool keeps_layout;              // and results follow the layout of the original ones: Python does both
  bool may_decline;               // a call that it declines goes to Python, which runs the reference
};

// What an autocast region does to floating-point arguments.
enum class Cast : int { keep = 0, lower = 1, fixed = 2 };
struct Policy {
  Cast cast = Cast::keep;
  at::ScalarType dtype = at::kFloat;
};

constexpr size_t kDevices = 2;  // CPU and CUDA, in that order.

// Calls by the dtypes of their tensors, as tensors.py's DTYPE_CLASSES: a generated backward keeps results in place of
// inputs only where storing them has not rounded them.
enum class DtypeClass : size_t { full = 0, half = 1, mixed = 2 };
constexpr size_t kDtypeClasses = 3;

inline std::optional<size_t> device_slot(c10::DeviceType type) {
  if (type == c10::kCPU) return 0;
  if (type == c10::kCUDA) return 1;
  return std::nullopt;
}

// Parts may be replaced while other threads call the operator: each part is swapped in whole, and old ones are kept
// until the record goes, so that a reader never holds a part that is freed. (The operators that handles lead to are
// kept by the Python side, runtime/native.py.)
template <typename Part>
class Replaceable {
 public:
  const Part* get() const { return current_.load(std::memory_order_acquire); }
  void set(std::unique_ptr<Part> part) {
    current_.store(part.get(), std::memory_order_release);
    if (part) kept_.push_back(std::move(part));
  }

 private:
  std::atomic<Part*> current_{nullptr};
  std::vector<std::unique_ptr<Part>> kept_;
};

struct Record {
  std::string name;
  std::vector<Argument> arguments;
  bool returns_list = false;
  c10::OperatorHandle operator_handle;
  Replaceable<c10::OperatorHandle> backward;
  std::array<Replaceable<Saves>, kDevices * kDtypeClasses> saves;  // by device, then by class
  bool saves_suffice = false;  // derivatives of every order can be computed from what is saved
  std::array<Replaceable<Kernel>, kDevices> kernels;
  std::array<Replaceable<Policy>, kDevices> policies;
  std::atomic<bool> closed{false};

  explicit Record(const char* name, c10::OperatorHandle handle) : name(name), operator_handle(std::move(handle)) {}

  // Python functions of the operator, called through keys that no tensor has: no second operator is needed for them.
  // The reference, whose torch operators are recorded and transformed: runtime/native.py registers it on this key.
  void call_reference(torch::jit::Stack* stack) const { call(c10::DispatchKey::PrivateUse3, stack); }
  // The operator on a device, with every check: what CompositeExplicitAutograd has, where no device's kernel covers it.
  void call_python(torch::jit::Stack* stack) const { call(c10::DispatchKey::PrivateUse2, stack); }

 private:
  void call(c10::DispatchKey key, torch::jit::Stack* stack) const {
    operator_handle.redispatchBoxed(c10::DispatchKeySet(key), stack);
  }
};

// Calls visit(position, tensor) for every defined tensor among the arguments on top of the stack; a list gives each of
// its elements.
template <typename Visit>
void for_each_tensor(const Record& record, const torch::jit::Stack& stack, Visit&& visit) {
  const size_t count = record.arguments.size();
  const c10::IValue* first = stack.data() + (stack.size() - count);
  for (size_t position = 0; position < count; ++position) {
    const c10::IValue& value = first[position];
    switch (record.arguments[position].kind) {
      case Kind::value:
        break;
      case Kind::tensor:
      case Kind::optional_tensor:
        if (value.isTensor() && value.toTensor().defined()) visit(position, value.toTensor());
        break;
      case Kind::tensor_list:
        for (const at::Tensor& tensor : value.toTensorVector()) visit(position, tensor);
        break;
      case Kind::optional_tensor_list:
        for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
          if (tensor.has_value() && tensor->defined()) visit(position, *tensor);
        }
        break;
    }
  }
}

// Replaces every defined tensor among the arguments on top of the stack by what change(position, tensor) returns.
template <typename Change>
void replace_tensors(const Record& record, torch::jit::Stack& stack, Change&& change) {
  const size_t count = record.arguments.size();
  c10::IValue* first = stack.data() + (stack.size() - count);
  for (size_t position = 0; position < count; ++position) {
    c10::IValue& value = first[position];
    switch (record.arguments[position].kind) {
      case Kind::value:
        break;
      case Kind::tensor:
      case Kind::optional_tensor:
        if (value.isTensor() && value.toTensor().defined()) value = change(position, value.toTensor());
        break;
      case Kind::tensor_list: {
        c10::List<at::Tensor> changed;
        for (const at::Tensor& tensor : value.toTensorVector()) changed.push_back(change(position, tensor));
        value = std::move(changed);
        break;
      }
      case Kind::optional_tensor_list: {
        c10::List<std::optional<at::Tensor>> changed;
        for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
          const bool defined = tensor.has_value() && tensor->defined();
          changed.push_back(defined ? std::optional<at::Tensor>(change(position, *tensor)) : std::nullopt);
        }
        value = std::move(changed);
        break;
      }
    }
  }
}

}  // namespace opsmith
