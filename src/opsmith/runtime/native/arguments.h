// The arguments of a call of a generated kernel: its tensors, flattened, and the key of its program.
#pragma once

#include <c10/core/DefaultDtype.h>

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
    key.add(static_cast<uint8_t>(c10::get_default_dtype_as_scalartype()));
    bool known = true;
    for (size_t position = 0; position < record.arguments.size() && known; ++position) {
      const c10::IValue& value = arguments[position];
      switch (record.arguments[position].kind) {
        case Kind::value:
          known = !statics[position] || add_value(value);
          break;
        case Kind::tensor:
        case Kind::optional_tensor:
          known = add_tensor(value);
          break;
        case Kind::tensor_list:
        case Kind::optional_tensor_list: {
          const c10::ArrayRef<c10::IValue> list = value.toListRef();
          key.add(static_cast<uint8_t>(list.size()));
          known = list.size() <= kMaxSlots;
          for (size_t i = 0; i < list.size() && known; ++i) known = add_tensor(list[i]);
          break;
        }
      }
    }
    return known && key.fits && device.has_value();
  }

 private:
  bool add_tensor(const c10::IValue& value) {
    if (count == kMaxSlots) return false;
    if (!value.isTensor() || !value.toTensor().defined()) {
      tensors[count++] = nullptr;
      key.add(0xFF);
      return true;
    }
    const at::Tensor& tensor = value.toTensor();
    if (!device.has_value()) device = tensor.device();
    if (tensor.device() != *device || tensor.dim() > kMaxDimensions) return false;
    tensors[count++] = &tensor;
    key.add(static_cast<uint8_t>(static_cast<uint8_t>(tensor.scalar_type()) << 1 | (tensor.dim() == 0)));
    return true;
  }

  // The bytes of a bool, a string or another value that is part of what is compiled; the first byte is its type.
  bool add_value(const c10::IValue& value) {
    if (value.isBool()) {
      key.add(value.toBool() ? 'T' : 'F');
    } else if (value.isNone()) {
      key.add('N');
    } else if (value.isInt()) {
      const int64_t number = value.toInt();
      key.add('I');
      key.add(&number, sizeof number);
    } else if (value.isDouble()) {
      const double number = value.toDouble();
      key.add('D');
      key.add(&number, sizeof number);
    } else if (value.isString()) {
      const std::string& text = value.toStringRef();
      key.add('S');
      key.add(static_cast<uint8_t>(std::min<size_t>(text.size(), 255)));
      key.add(text.data(), text.size());
    } else if (value.isList()) {
      const c10::ArrayRef<c10::IValue> list = value.toListRef();
      key.add('L');
      key.add(static_cast<uint8_t>(std::min<size_t>(list.size(), 255)));
      for (const c10::IValue& item : list) {
        if (!add_value(item)) return false;
      }
    } else {
      return false;
    }
    return true;
  }
};

}  // namespace opsmith
