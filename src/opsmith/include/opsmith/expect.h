// The first step of host code: checks of arguments, with error messages.
//
//   opsmith::expect(x, "x").cuda().dtype<float, opsmith::half>().dims(2).contiguous();
//   opsmith::expect(y, "y").same_device(x, "x").same_dtype(x, "x").same_shape(x, "x");
//   opsmith::expect(bias, "bias").shape({x.size(1)});  // an optional tensor: nothing is expected of an absent one
#pragma once

#include "tensors.h"

namespace opsmith __attribute__((visibility("hidden"))) {

class Expectation {
 public:
  Expectation(const Tensor* tensor, const char* name) : tensor_(tensor), name_(name) {}

  const Expectation& cuda() const {
    if (tensor_ != nullptr && !tensor_->is_cuda()) {
      fail(name_, " is on ", place(*tensor_), "; this kernel takes CUDA tensors: pass ", name_, ".cuda()");
    }
    return *this;
  }

  const Expectation& cpu() const {
    if (tensor_ != nullptr && !tensor_->is_cpu()) {
      fail(name_, " is on ", place(*tensor_), "; this kernel takes CPU tensors: pass ", name_, ".cpu()");
    }
    return *this;
  }

  template <typename... Scalars>
  const Expectation& dtype() const {
    if (tensor_ == nullptr) return *this;
    const int32_t given = dtype_number(*tensor_);
    if (!((given == dtype_number<Scalars>()) || ...)) {
      fail(name_, " is of ", dtype_name(tensor_->scalar_type()), "; this kernel takes ", dtype_names<Scalars...>());
    }
    return *this;
  }

  const Expectation& dims(int64_t count) const { return dims(count, count); }

  const Expectation& dims(int64_t least, int64_t most) const {
    if (tensor_ != nullptr && (tensor_->dim() < least || tensor_->dim() > most)) {
      const std::string range = least == most ? "" : std::to_string(least) + " to ";
      fail(name_, " has ", tensor_->dim(), " dimensions, ", listed(tensor_->sizes()), "; this kernel takes ", range,
           most);
    }
    return *this;
  }

  // -1 takes any size: shape({-1, 3}).
  const Expectation& shape(Sizes wanted) const {
    if (tensor_ == nullptr) return *this;
    const Sizes given = tensor_->sizes();
    bool alike = given.size() == wanted.size();
    for (size_t i = 0; alike && i < wanted.size(); ++i) alike = wanted[i] == -1 || wanted[i] == given[i];
    if (!alike) fail(name_, " has shape ", listed(given), "; this kernel takes ", listed(wanted), " (-1: any size)");
    return *this;
  }

  const Expectation& contiguous() const {
    if (tensor_ != nullptr && !tensor_->is_contiguous()) {
      fail(name_, " is not contiguous (shape ", listed(tensor_->sizes()), ", strides ", listed(tensor_->strides()),
           "): pass ", name_, ".contiguous()");
    }
    return *this;
  }

  const Expectation& same_shape(const Tensor& other, const char* other_name) const {
    if (tensor_ != nullptr && !same(tensor_->sizes(), other.sizes())) {
      fail(name_, " has shape ", listed(tensor_->sizes()), " and ", other_name, " has ", listed(other.sizes()),
           "; this kernel takes two alike");
    }
    return *this;
  }

  const Expectation& same_dtype(const Tensor& other, const char* other_name) const {
    if (tensor_ != nullptr && dtype_number(*tensor_) != dtype_number(other)) {
      fail(name_, " is of ", dtype_name(tensor_->scalar_type()), " and ", other_name, " of ",
           dtype_name(other.scalar_type()), "; this kernel takes two alike: pass ", name_, ".to(", other_name,
           ".dtype)");
    }
    return *this;
  }

  const Expectation& same_device(const Tensor& other, const char* other_name) const {
    if (tensor_ != nullptr && place(*tensor_) != place(other)) {
      fail(name_, " is on ", place(*tensor_), " and ", other_name, " on ", place(other),
           "; this kernel takes both on one device: pass ", name_, ".to(", other_name, ".device)");
    }
    return *this;
  }

 private:
  static std::string place(const Tensor& tensor) {
    if (tensor.is_cpu()) return "cpu";
    if (tensor.is_cuda()) return "cuda:" + std::to_string(tensor.get_device_index());
    return "a device that is neither the CPU nor a CUDA GPU";
  }

  const Tensor* tensor_;  // null: an optional tensor that is absent
  const char* name_;
};

inline Expectation expect(const Tensor& tensor, const char* name) { return {&tensor, name}; }

inline Expectation expect(const std::optional<Tensor>& tensor, const char* name) {
  return {tensor.has_value() && tensor->defined() ? &*tensor : nullptr, name};
}

}  // namespace opsmith
