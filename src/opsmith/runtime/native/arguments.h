// The arguments of a call of a generated kernel: its tensors, flattened, and the key of its program.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/SmallVector.h>

#include "generated.h"

namespace opsmith {

// The tensors of a call, flattened, and what its program depends on.
struct Gathered {
  int count = 0;
  const at::Tensor* tensors[kMaxSlots];  // null: absent
  Key key;
  std::optional<c10::Device> device;

  // False if something is not supported here, or if tensors are on several devices.
  bool gather(const Record& record, const std::vector<bool>& statics, const c10::IValue* arguments) {
    key.add_dtype(static_cast<int>(c10::get_default_dtype_as_scalartype()));
    bool known = true;
    for (size_t position = 0; position < record.arguments.size() && known; ++position) {
      const c10::IValue& value = arguments[position];
      switch (record.arguments[position].kind) {
        case Kind::value:
          known = !statics[position] || add_value(value);
          break;
        case Kind::tensor:
        case Kind::optional_tensor:
          known = add_tensor(value, statics[position]);
          break;
        case Kind::tensor_list:
        case Kind::optional_tensor_list: {
          const c10::ArrayRef<c10::IValue> list = value.toListRef();
          key.add_count(list.size());
          known = list.size() <= kMaxSlots;
          for (size_t i = 0; i < list.size() && known; ++i) known = add_tensor(list[i], statics[position]);
          break;
        }
      }
    }
    return known && key.fits && device.has_value();
  }

 private:
  bool add_tensor(const c10::IValue& value, bool counted) {
    if (count == kMaxSlots) return false;
    if (!value.isTensor() || !value.toTensor().defined()) {
      tensors[count++] = nullptr;
      key.add_absent();
      return true;
    }
    const at::Tensor& tensor = value.toTensor();
    if (!device.has_value()) device = tensor.device();
    if (tensor.device() != *device || tensor.dim() > kMaxDimensions) return false;
    tensors[count++] = &tensor;
    key.add_tensor(static_cast<int>(tensor.scalar_type()), tensor.dim(), counted);
    return true;
  }

  // A bool, a string or another value that is part of what is compiled.
  bool add_value(const c10::IValue& value) {
    if (value.isBool()) {
      key.add_bool(value.toBool());
    } else if (value.isNone()) {
      key.add_none();
    } else if (value.isInt()) {
      key.add_int(value.toInt());
    } else if (value.isDouble()) {
      key.add_double(value.toDouble());
    } else if (value.isString()) {
      key.add_string(value.toStringRef().data(), value.toStringRef().size());
    } else if (value.isList()) {
      const c10::ArrayRef<c10::IValue> list = value.toListRef();
      key.add_list(list.size());
      for (const c10::IValue& item : list) {
        if (!add_value(item)) return false;
      }
    } else {
      return false;
    }
    return true;
  }
};

// A call through torch's C++ API, as GeneratedCall takes it.
class AtenCall {
 public:
  using Tensor = at::Tensor;
  using Tensors = c10::SmallVector<at::Tensor, 4>;

  AtenCall(const Gathered& given, const c10::IValue* arguments, size_t device)
      : given_(given), arguments_(arguments), device_(device) {}

  size_t device() const { return device_; }
  int count() const { return given_.count; }
  const at::Tensor* tensor(int slot) const { return given_.tensors[slot]; }

  // False: it is a symbol, or of another type.
  bool read(const Prepared::Scalar& scalar, int64_t& bits) const {
    const c10::IValue& value = arguments_[scalar.position];
    if (scalar.floating ? !value.isDouble() : !value.isInt()) return false;
    if (scalar.floating) {
      const double number = value.toDouble();
      std::memcpy(&bits, &number, sizeof number);
    } else {
      bits = value.toInt();
    }
    return true;
  }

  at::Tensor empty_on_cpu(Sizes sizes, int dtype) const {
    return at::Tensor(at::detail::empty_cpu(array_of(sizes), static_cast<at::ScalarType>(dtype)));
  }

  at::Tensor empty(Sizes sizes, Sizes strides, int number) const {
    const auto dtype = static_cast<at::ScalarType>(number);
    if (device_ == 0) return at::Tensor(at::detail::empty_strided_cpu(array_of(sizes), array_of(strides), dtype));
    return at::_ops::empty_strided::redispatch(
        c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::fromIntArrayRefKnownNonNegative(array_of(sizes)),
        c10::fromIntArrayRefKnownNonNegative(array_of(strides)), dtype, c10::kStrided, *given_.device, false);
  }

  static Strided layout_of(const at::Tensor& tensor) {
    Strided strided;
    strided.sizes = view_of(tensor.sizes());
    strided.strides = view_of(tensor.strides());
    return strided;
  }
  // tensors.py's is_placeholder: a shape in place of a tensor that was not kept.
  static bool is_placeholder(const at::Tensor& tensor) {
    return tensor.numel() != 0 && tensor.storage().nbytes() == 0;
  }
  static int dtype(const at::Tensor& tensor) { return static_cast<int>(tensor.scalar_type()); }
  static int64_t itemsize(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.element_size()); }
  static const void* data(const at::Tensor& tensor) { return tensor.const_data_ptr(); }
  static void* mutable_data(const at::Tensor& tensor) { return tensor.mutable_data_ptr(); }
  static void zero(at::Tensor& tensor) { tensor.zero_(); }
  static bool share_storage(const at::Tensor& first, const at::Tensor& second) { return first.is_alias_of(second); }

 private:
  static Sizes view_of(c10::IntArrayRef values) { return {values.data(), static_cast<int>(values.size())}; }
  static c10::IntArrayRef array_of(Sizes sizes) { return {sizes.data, static_cast<size_t>(sizes.count)}; }

  const Gathered& given_;
  const c10::IValue* arguments_;
  const size_t device_;
};

}  // namespace opsmith
