// Tensors of host code: new ones, their data, and their description in messages.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "emulation.h"
#include "errors.h"

namespace opsmith __attribute__((visibility("hidden"))) {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

using half = torch::headeronly::Half;
using bfloat16 = torch::headeronly::BFloat16;

// The dtype of tensors whose elements are of this C++ type.
template <typename Scalar>
inline constexpr ScalarType dtype_of = torch::headeronly::CppTypeToScalarType<std::remove_cv_t<Scalar>>::value;

// The same as torch's C shim numbers it. Asked once: torch::stable finds a dtype by trying one after the other.
template <typename Scalar>
int32_t dtype_number() {
  static const int32_t number = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype_of<Scalar>));
  return number;
}

inline int32_t dtype_number(const Tensor& tensor) {
  int32_t number = 0;
  check(aoti_torch_get_dtype(tensor.get(), &number), "aoti_torch_get_dtype");
  return number;
}

// A dtype as Python names it.
inline std::string dtype_name(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Byte: return "uint8";
    case ScalarType::Char: return "int8";
    case ScalarType::Short: return "int16";
    case ScalarType::Int: return "int32";
    case ScalarType::Long: return "int64";
    case ScalarType::Half: return "float16";
    case ScalarType::Float: return "float32";
    case ScalarType::Double: return "float64";
    case ScalarType::ComplexHalf: return "complex32";
    case ScalarType::ComplexFloat: return "complex64";
    case ScalarType::ComplexDouble: return "complex128";
    case ScalarType::Bool: return "bool";
    case ScalarType::BFloat16: return "bfloat16";
    default: return torch::headeronly::toString(dtype);
  }
}

// "float32, float16"
template <typename... Scalars>
std::string dtype_names() {
  std::string names;
  ((names += (names.empty() ? "" : ", ") + dtype_name(dtype_of<Scalars>)), ...);
  return names;
}

// "[2, 3]"
inline std::string listed(Sizes sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

inline bool same(Sizes first, Sizes second) {
  if (first.size() != second.size()) return false;
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] != second[i]) return false;
  }
  return true;
}

// A fresh contiguous tensor of the given sizes, on the device of `like`. torch::stable::empty_like finds its operator
// by name on every call, which on a small tensor costs more than the kernel.
inline Tensor empty(const Tensor& like, Sizes sizes, int32_t dtype) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t dimension = sizes.size(); dimension-- > 0;) {
    strides[dimension] = stride;
    stride *= sizes[dimension] > 1 ? sizes[dimension] : 1;
  }
  int32_t device_type = 0;
  int32_t device_index = 0;
  check(aoti_torch_get_device_type(like.get(), &device_type), "aoti_torch_get_device_type");
  check(aoti_torch_get_device_index(like.get(), &device_index), "aoti_torch_get_device_index");
  AtenTensorHandle handle = nullptr;
  check(
      aoti_torch_empty_strided(
          static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), dtype, device_type, device_index, &handle),
      "aoti_torch_empty_strided");
  Tensor made(handle);
  detail::remember(made, /*by_data=*/false);
  return made;
}

// With the dtype of `like`.
inline Tensor empty(const Tensor& like, Sizes sizes) { return empty(like, sizes, dtype_number(like)); }

// With elements of the given type: empty<float>(x, {rows, columns}).
template <typename Scalar>
Tensor empty(const Tensor& like, Sizes sizes) {
  return empty(like, sizes, dtype_number<Scalar>());
}

// Of the same sizes, dtype and device; contiguous, whatever `like` is.
inline Tensor empty_like(const Tensor& like) { return empty(like, like.sizes()); }

// Fills a tensor with zeros, in the order of the current stream.
inline void zero(const Tensor& tensor) { check(aoti_torch_zero_(tensor.get()), "aoti_torch_zero_"); }

// The elements of a tensor: data<float>(out) to write, data<const float>(x) to read. Another dtype is refused.
template <typename Scalar>
Scalar* data(const Tensor& tensor) {
  if (dtype_number(tensor) != dtype_number<std::remove_cv_t<Scalar>>()) {
    fail("a tensor of ", dtype_name(tensor.scalar_type()), " was read as ", dtype_name(dtype_of<Scalar>));
  }
  detail::remember(tensor, /*by_data=*/true);
  if constexpr (std::is_const_v<Scalar>) {
    return static_cast<Scalar*>(tensor.const_data_ptr());
  } else {
    return static_cast<Scalar*>(tensor.mutable_data_ptr());
  }
}

// Null where no tensor was given.
template <typename Scalar>
Scalar* data(const std::optional<Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? data<Scalar>(*tensor) : nullptr;
}

}  // namespace opsmith
