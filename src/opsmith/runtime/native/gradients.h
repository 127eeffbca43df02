// Gradient recording: what an operator does on the Autograd key, and the node it records; gradients.py does the same in
// Python.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "record.h"

namespace opsmith {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// std::shared_ptr<Node> in torch 2.11, c10::intrusive_ptr<Node> in 2.13.
using NodePointer = decltype(std::declval<Node&>().getptr());

// What is kept of an input that the backward kernel does not need. Not a SavedVariable, whose pack hooks would read it.
struct Shape {
  std::vector<int64_t> sizes;
  caffe2::TypeMeta dtype;
  c10::Device device;
};

// A tensor of that shape with no memory. It is only passed to the backward operator, whose reference refuses it.
inline at::Tensor placeholder(const Shape& kept) {
  c10::Storage nothing(c10::Storage::use_byte_size_t(), 0, at::DataPtr(nullptr, kept.device), nullptr, false);
  const c10::DispatchKey key = kept.device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  at::Tensor shape = at::detail::make_tensor<c10::TensorImpl>(std::move(nothing), c10::DispatchKeySet(key), kept.dtype);
  const std::vector<int64_t> strides(kept.sizes.size(), 0);
  shape.unsafeGetTensorImpl()->set_sizes_and_strides(kept.sizes, strides);
  return shape;
}

// One recorded call. It keeps the arguments, calls the backward operator by its handle, and distributes the results.
struct RecordedCall final : Node {
  std::shared_ptr<Record> record;
  std::vector<c10::IValue> values;    // one per argument; of a list of tensors its length, of a tensor nothing
  std::vector<SavedVariable> inputs;  // the tensors among the arguments, flattened
  std::vector<bool> defined;          // whether inputs[i] was given
  std::vector<std::optional<Shape>> shapes;  // of inputs[i], if it is not saved
  std::vector<SavedVariable> results; // flattened
  std::vector<bool> keeps_result;
  std::optional<size_t> situation;  // the call's device and dtype class: its place in record->saves
  const Saves* saves = nullptr;  // what the device's backward kernel needed when this was recorded

  std::string name() const override { return record->name + "_backward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& input : inputs) input.reset_data();
    for (SavedVariable& result : results) result.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const c10::OperatorHandle* backward = record->backward.get();
    const bool same_kernel = !situation.has_value() || record->saves[*situation].get() == saves;
    TORCH_CHECK(!record->closed && backward != nullptr && same_kernel, record->name,
                ", or its backward kernel, has been declared again since. Run the forward pass once more.");

    variable_list found(inputs.size());
    c10::List<bool> needs;
    bool any_needed = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      bool needed = defined[i] && task_should_compute_output(i);
      if (const at::Tensor* grad = needed ? passthrough(i, grads) : nullptr) {
        found[i] = *grad;
        needed = false;
      }
      needs.push_back(needed);
      any_needed |= needed;
    }
    bool any_grad = false;
    for (const at::Tensor& grad : grads) any_grad |= grad.defined();
    if (!any_needed || !any_grad) return found;

    torch::jit::Stack stack;
    stack.reserve(grads.size() + values.size() + results.size() + 1);
    push_optional(stack, grads);
    push_arguments(stack);
    variable_list kept(results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (keeps_result[i]) kept[i] = results[i].unpack(getptr());
    }
    push_optional(stack, kept);
    stack.emplace_back(needs);
    backward->callBoxed(&stack);

    std::vector<at::Tensor> returned = stack.back().toTensorVector();
    size_t asked = 0;
    for (size_t i = 0; i < inputs.size(); ++i) asked += needs[i];
    TORCH_CHECK(returned.size() == asked, record->name, "_backward returned ", returned.size(), " gradients where ", asked,
                " were requested");
    size_t next = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (needs[i]) found[i] = std::move(returned.at(next++));
    }
    return found;
  }

 private:
  // The gradient that an input shares with a result, or null.
  const at::Tensor* passthrough(size_t i, const variable_list& grads) const {
    if (saves == nullptr || saves->passthrough.empty() || !shapes[i].has_value()) return nullptr;
    const int place = saves->passthrough.at(i);
    if (place < 0 || !grads.at(place).defined()) return nullptr;
    const at::Tensor& grad = grads[place];
    const Shape& kept = *shapes[i];
    if (grad.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return nullptr;
    const bool same = grad.dtype() == kept.dtype && grad.device() == kept.device && grad.sizes() == kept.sizes;
    return same ? &grad : nullptr;
  }

  void push_optional(torch::jit::Stack& stack, const variable_list& tensors) const {
    if (record->returns_list) {
      c10::List<std::optional<at::Tensor>> list;
      for (const at::Tensor& tensor : tensors) {
        list.push_back(tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt);
      }
      stack.emplace_back(std::move(list));
      return;
    }
    for (const at::Tensor& tensor : tensors) {
      stack.push_back(tensor.defined() ? c10::IValue(tensor) : c10::IValue());
    }
  }

  void push_arguments(torch::jit::Stack& stack) {
    size_t next = 0;
    auto unpacked = [&]() -> at::Tensor {
      const size_t i = next++;
      if (!defined[i]) return at::Tensor();
      if (!shapes[i].has_value()) return inputs[i].unpack();
      at::Tensor tensor = placeholder(*shapes[i]);
      if (next_edge(i).is_valid() && !record->saves_suffice) {
        // In its input's place in the graph, so that a second gradient reaches it and raises; otherwise it would silently
        // miss a term.
        torch::autograd::impl::set_gradient_edge(tensor, next_edge(i));
      }
      return tensor;
    };
    for (size_t position = 0; position < values.size(); ++position) {
      switch (record->arguments[position].kind) {
        case Kind::value:
          stack.push_back(values[position]);
          break;
        case Kind::tensor:
        case Kind::optional_tensor: {
          at::Tensor tensor = unpacked();
          stack.push_back(tensor.defined() ? c10::IValue(std::move(tensor)) : c10::IValue());
          break;
        }
        case Kind::tensor_list: {
          c10::List<at::Tensor> list;
          for (int64_t left = values[position].toInt(); left > 0; --left) list.push_back(unpacked());
          stack.emplace_back(std::move(list));
          break;
        }
        case Kind::optional_tensor_list: {
          c10::List<std::optional<at::Tensor>> list;
          for (int64_t left = values[position].toInt(); left > 0; --left) {
            at::Tensor tensor = unpacked();
            list.push_back(tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt);
          }
          stack.emplace_back(std::move(list));
          break;
        }
      }
    }
  }
};

template <typename Pointer>
Pointer make_node() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    Node* node = new RecordedCall();
    return Pointer(node, [](auto* done) { deleteNode(done); });
  } else {
    return Pointer(c10::make_intrusive<RecordedCall>());
  }
}

class GradientKernel final : public c10::OperatorKernel {
 public:
  explicit GradientKernel(std::shared_ptr<Record> record) : record_(std::move(record)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    bool tangent = false;
    bool requires_grad = false;
    for_each_tensor(*record_, *stack, [&](size_t position, const at::Tensor& tensor) {
      tangent |= torch::autograd::isFwGradDefined(tensor);
      requires_grad |= tensor.requires_grad();
    });
    const bool record_call = requires_grad && at::GradMode::is_enabled();
    const c10::OperatorHandle* backward = record_call ? record_->backward.get() : nullptr;
    if (tangent || (record_call && backward == nullptr)) {
      record_->call_reference(stack);
      return;
    }
    if (!record_call) {
      at::AutoDispatchBelowAutograd guard;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
      return;
    }
    record(op, keys, stack);
  }

 private:
  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    NodePointer pointer = make_node<NodePointer>();
    auto& node = static_cast<RecordedCall&>(*pointer);
    node.record = record_;
    const Saves* saves = keep_arguments(node, *stack);
    {
      at::AutoDispatchBelowAutograd guard;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    }
    if (record_->returns_list) {
      c10::List<at::Tensor> list = stack->back().toTensorList();
      for (size_t i = 0; i < list.size(); ++i) {
        keep_result(node, pointer, list.get(i), saves != nullptr && saves->results.at(0));
      }
      return;
    }
    const size_t count = op.schema().returns().size();
    for (size_t i = 0; i < count; ++i) {
      const c10::IValue& result = (*stack)[stack->size() - count + i];
      keep_result(node, pointer, result.toTensor(), saves != nullptr && saves->results.at(i));
    }
  }

  // Saves what the backward operator takes; returns what the device's backward kernel needs, or null. Under a transform or
  // a tracer every input is kept, since derived parts of the backward may run.
  const Saves* keep_arguments(RecordedCall& node, const torch::jit::Stack& stack) {
    bool plain = true;
    std::optional<size_t> device;
    std::optional<at::ScalarType> dtype;
    bool uniform = true;
    for_each_tensor(*record_, stack, [&](size_t, const at::Tensor& tensor) {
      if (!dtype.has_value()) {
        device = device_slot(tensor.device().type());
        dtype = tensor.scalar_type();
      }
      uniform &= *dtype == tensor.scalar_type();
      plain &= !tensor.key_set().has_any(kWrapped);
    });
    if (device.has_value()) {
      node.situation = *device * kDtypeClasses + static_cast<size_t>(dtype_class(*dtype, uniform));
      node.saves = record_->saves[*node.situation].get();
    }
    const Saves* saves = node.saves;

    torch::autograd::edge_list edges;
    auto keep = [&](size_t position, const at::Tensor& tensor) {
      const Argument& argument = record_->arguments[position];
      node.defined.push_back(tensor.defined());
      if (!tensor.defined()) {
        node.shapes.emplace_back();
        node.inputs.emplace_back();
        edges.emplace_back();
        return;
      }
      const bool whole = saves == nullptr || !plain || saves->arguments[position];
      if (whole) {
        node.shapes.emplace_back();
        node.inputs.emplace_back(argument.inert ? tensor.detach() : tensor, /*is_output=*/false);
      } else {
        node.shapes.push_back(Shape{tensor.sizes().vec(), tensor.dtype(), tensor.device()});
        node.inputs.emplace_back();
      }
      const bool variable = !argument.inert && tensor.requires_grad();
      edges.push_back(variable ? torch::autograd::impl::gradient_edge(tensor) : torch::autograd::Edge());
    };

    const size_t count = record_->arguments.size();
    const c10::IValue* values = stack.data() + (stack.size() - count);
    node.values.resize(count);
    for (size_t position = 0; position < count; ++position) {
      const c10::IValue& value = values[position];
      switch (record_->arguments[position].kind) {
        case Kind::value:
          node.values[position] = value;
          break;
        case Kind::tensor:
        case Kind::optional_tensor:
          keep(position, value.isTensor() ? value.toTensor() : at::Tensor());
          break;
        case Kind::tensor_list:
          node.values[position] = value.toTensorList().size();
          for (const at::Tensor& tensor : value.toTensorVector()) keep(position, tensor);
          break;
        case Kind::optional_tensor_list: {
          const std::vector<std::optional<at::Tensor>> tensors = value.toOptionalTensorVector();
          node.values[position] = static_cast<int64_t>(tensors.size());
          for (const auto& tensor : tensors) keep(position, tensor.value_or(at::Tensor()));
          break;
        }
      }
    }
    node.set_next_edges(std::move(edges));
    return saves;
  }

  static DtypeClass dtype_class(at::ScalarType dtype, bool uniform) {
    if (uniform && (dtype == at::kFloat || dtype == at::kDouble)) return DtypeClass::full;
    if (uniform && (dtype == at::kHalf || dtype == at::kBFloat16)) return DtypeClass::half;
    return DtypeClass::mixed;
  }

  void keep_result(RecordedCall& node, const NodePointer& pointer, const at::Tensor& result, bool keep) {
    if (torch::autograd::isDifferentiableType(result.scalar_type())) {
      torch::autograd::set_history(result, pointer);
    } else {
      node.add_input_metadata(Node::undefined_input());
    }
    node.keeps_result.push_back(keep);
    if (keep) {
      node.results.emplace_back(result, /*is_output=*/true);
    } else {
      node.results.emplace_back();
    }
  }

  static constexpr c10::DispatchKeySet kWrapped{
      c10::DispatchKey::Python,
      c10::DispatchKey::FuncTorchBatched,
      c10::DispatchKey::FuncTorchGradWrapper,
      c10::DispatchKey::Functionalize};

  std::shared_ptr<Record> record_;
};

// Increments the autograd versions of the tensors that an operator mutates. Registered on ADInplaceOrView.
class VersionKernel final : public c10::OperatorKernel {
 public:
  explicit VersionKernel(std::shared_ptr<Record> record) : record_(std::move(record)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    std::vector<at::Tensor> mutated;
    for_each_tensor(*record_, *stack, [&](size_t position, const at::Tensor& tensor) {
      if (record_->arguments[position].mutated) mutated.push_back(tensor);
    });
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    }
    for (const at::Tensor& tensor : mutated) {
      if (!tensor.is_inference()) torch::autograd::impl::bump_version(tensor);
    }
  }

 private:
  std::shared_ptr<Record> record_;
};

}  // namespace opsmith
