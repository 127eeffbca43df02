// One call of a generated kernel on torch's stable ABI: what runtime/native/arguments.h is for torch's C++ API.
#pragma once

#include "../../../runtime/native/generated_call.h"
#include "values.h"

namespace opsmith::shipped {

// The tensors of a call, flattened, and what its program depends on.
struct Gathered {
  int count = 0;
  const Tensor* tensors[kMaxSlots];  // null: absent
  Key key;

  // False if something is not supported here. `device`: 0 for the CPU, 1 for a GPU, `index`.
  bool gather(const std::vector<Value>& values, const std::string& statics, int default_dtype, int device, int index) {
    key.add_dtype(default_dtype);
    bool known = true;
    for (size_t position = 0; position < values.size() && known; ++position) {
      const Value& value = values[position];
      if (is_list_of_tensors(value)) {
        size_t length = 0;
        for_each_tensor(value, [&](const Tensor*) { ++length; });
        key.add_count(length);
      }
      const bool is_static = statics[position] == '1';
      bool any = false;
      for_each_tensor(value, [&](const Tensor* tensor) {
        any = true;
        known = known && add_tensor(tensor, device, index, is_static);
      });
      if (is_static && !any && !is_list_of_tensors(value)) known = known && add_value(value);
    }
    return known && key.fits && count > 0;
  }

 private:
  bool add_tensor(const Tensor* tensor, int device, int index, bool counted) {
    if (count == kMaxSlots) return false;
    tensors[count++] = tensor;
    if (tensor == nullptr) {
      key.add_absent();
      return true;
    }
    const bool here = device == 0 ? tensor->is_cpu() : tensor->is_cuda() && tensor->get_device_index() == index;
    const int dtype = Dtypes::get().known(running_dtype(*tensor));
    if (!here || dtype < 0 || tensor->dim() > kMaxDimensions) return false;
    key.add_tensor(dtype, tensor->dim(), counted);
    return true;
  }

  template <typename Type>
  void add(const Type& value) {
    if constexpr (std::is_same_v<Type, bool>) {
      key.add_bool(value);
    } else if constexpr (std::is_same_v<Type, int64_t>) {
      key.add_int(value);
    } else if constexpr (std::is_same_v<Type, double>) {
      key.add_double(value);
    } else {
      key.add_string(value.data(), value.size());
    }
  }

  template <typename Type>
  bool try_type(const Value& value) {
    if (const auto* single = std::get_if<Type>(&value)) {
      add(*single);
      return true;
    }
    if (const auto* optional = std::get_if<std::optional<Type>>(&value)) {
      if (optional->has_value()) {
        add(**optional);
      } else {
        key.add_none();
      }
      return true;
    }
    return false;
  }

  template <typename Type>
  bool try_list(const Value& value) {
    const auto* list = std::get_if<std::vector<Type>>(&value);
    if (list == nullptr) return false;
    key.add_list(list->size());
    for (const Type item : *list) add(item);
    return true;
  }

  bool add_value(const Value& value) {
    return try_type<bool>(value) || try_type<int64_t>(value) || try_type<double>(value) ||
           try_type<std::string>(value) || try_list<bool>(value) || try_list<int64_t>(value) || try_list<double>(value);
  }
};

// A call as GeneratedCall takes it.
class StableCall {
 public:
  using Tensor = shipped::Tensor;
  using Tensors = std::vector<Tensor>;

  StableCall(const Gathered& given, const std::vector<Value>& values, int device, int index)
      : given_(given), values_(values), device_(device), index_(index) {}

  size_t device() const { return static_cast<size_t>(device_); }
  int count() const { return given_.count; }
  const Tensor* tensor(int slot) const { return given_.tensors[slot]; }

  bool read(const Prepared::Scalar& scalar, int64_t& bits) const {
    const Value& value = values_[scalar.position];
    if (scalar.floating) {
      const auto* number = std::get_if<double>(&value);
      if (number != nullptr) std::memcpy(&bits, number, sizeof *number);
      return number != nullptr;
    }
    const auto* number = std::get_if<int64_t>(&value);
    if (number != nullptr) bits = *number;
    return number != nullptr;
  }

  Tensor empty_on_cpu(Sizes sizes, int dtype) const {
    int64_t strides[kMaxDimensions];
    int64_t step = 1;
    for (int d = sizes.count - 1; d >= 0; --d) {
      strides[d] = step;
      step *= std::max<int64_t>(sizes[d], 1);
    }
    return empty(sizes, {strides, sizes.count}, dtype);
  }
  Tensor empty(Sizes sizes, Sizes strides, int dtype) const {
    static const int32_t kinds[] = {aoti_torch_device_type_cpu(), aoti_torch_device_type_cuda()};
    AtenTensorHandle made = nullptr;
    check(aoti_torch_empty_strided(sizes.count, sizes.data, strides.data, Dtypes::get().running(dtype), kinds[device_],
                                   index_, &made),
          "aoti_torch_empty_strided");
    return Tensor(made);
  }

  static Strided layout_of(const Tensor& tensor) {
    const int dimensions = static_cast<int>(tensor.dim());
    Strided strided;
    strided.sizes = {tensor.sizes().data(), dimensions};
    strided.strides = {tensor.strides().data(), dimensions};
    return strided;
  }
  static bool is_placeholder(const Tensor& tensor) {
    int64_t bytes = 0;
    check(aoti_torch_get_storage_size(tensor.get(), &bytes), "aoti_torch_get_storage_size");
    return bytes == 0 && tensor.numel() != 0;
  }
  static int dtype(const Tensor& tensor) { return Dtypes::get().known(running_dtype(tensor)); }
  static int64_t itemsize(const Tensor& tensor) {
    return static_cast<int64_t>(aoti_torch_dtype_element_size(running_dtype(tensor)));
  }
  static const void* data(const Tensor& tensor) { return tensor.const_data_ptr(); }
  static void* mutable_data(const Tensor& tensor) { return tensor.mutable_data_ptr(); }
  static void zero(Tensor& tensor) { check(aoti_torch_zero_(tensor.get()), "aoti_torch_zero_"); }
  // The stable ABI does not show a tensor's storage. Tensors of one allocation are recognized by their addresses,
  // which GeneratedCall compares next.
  static bool share_storage(const Tensor&, const Tensor&) { return true; }

 private:
  const Gathered& given_;
  const std::vector<Value>& values_;
  const int device_;
  const int index_;
};

}  // namespace opsmith::shipped
