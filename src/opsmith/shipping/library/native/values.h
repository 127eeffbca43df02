// The arguments and results of a boxed kernel on torch's stable ABI. An operator's types are letters, one for each
// argument, as shipping/library/text.py writes them.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "../../../include/opsmith/errors.h"

namespace opsmith::shipped {

using Tensor = torch::stable::Tensor;
using Device = torch::stable::Device;
using Dtype = torch::headeronly::ScalarType;

struct Absent {};
using Value = std::variant<
    Absent, Tensor, std::optional<Tensor>, std::vector<Tensor>, std::vector<std::optional<Tensor>>, int64_t,
    std::optional<int64_t>, std::vector<int64_t>, double, std::optional<double>, std::vector<double>, bool,
    std::optional<bool>, std::vector<bool>, std::string, std::optional<std::string>, Dtype, std::optional<Dtype>,
    Device, std::optional<Device>>;

// Calls with(T()) for the type of a letter: 'a' is the variant's second alternative.
template <size_t Index = 1, typename With>
auto with_type(char letter, With&& with) {
  using Type = std::variant_alternative_t<Index, Value>;
  if constexpr (Index + 1 < std::variant_size_v<Value>) {
    if (letter != 'a' + static_cast<int>(Index) - 1) return with_type<Index + 1>(letter, with);
  }
  return with(static_cast<Type*>(nullptr));
}

// Takes an argument off the stack, and with it the ownership of its memory.
inline Value take(char letter, StableIValue boxed) {
  return with_type(letter, [&](auto* type) -> Value {
    using Type = std::remove_pointer_t<decltype(type)>;
    return Value(std::in_place_type<Type>, torch::stable::detail::to<Type>(boxed));
  });
}

// torch::stable converts lists of everything but bool.
inline StableIValue boxed_flags(const std::vector<bool>& flags) {
  StableListHandle list = nullptr;
  check(torch_new_list_reserve_size(flags.size(), &list), "torch_new_list_reserve_size");
  for (const bool flag : flags) {
    check(torch_list_push_back(list, torch::stable::detail::from(flag)), "torch_list_push_back");
  }
  return torch::stable::detail::from(list);
}

inline StableIValue give(const Value& value) {
  return std::visit(
      [](const auto& held) -> StableIValue {
        using Type = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Type, Absent>) {
          return 0;
        } else if constexpr (std::is_same_v<Type, std::vector<bool>>) {
          return boxed_flags(held);
        } else {
          return torch::stable::detail::from<Type>(held);
        }
      },
      value);
}

// Calls visit(slot, tensor) for each tensor of an argument, null where an optional one is absent.
template <typename Visit>
void for_each_tensor(const Value& value, Visit&& visit) {
  if (const auto* tensor = std::get_if<Tensor>(&value)) visit(tensor);
  if (const auto* tensor = std::get_if<std::optional<Tensor>>(&value)) visit(tensor->has_value() ? &**tensor : nullptr);
  if (const auto* list = std::get_if<std::vector<Tensor>>(&value)) {
    for (const Tensor& tensor : *list) visit(&tensor);
  }
  if (const auto* list = std::get_if<std::vector<std::optional<Tensor>>>(&value)) {
    for (const auto& tensor : *list) visit(tensor.has_value() ? &*tensor : nullptr);
  }
}

inline bool is_list_of_tensors(const Value& value) {
  return std::holds_alternative<std::vector<Tensor>>(value) ||
         std::holds_alternative<std::vector<std::optional<Tensor>>>(value);
}

// --- dtypes ------------------------------------------------------------------------------------------------------------

// The numbers of dtypes when opsmith was built, and in the torch that is running. torch's ABI guarantees only the
// functions that return the latter.
class Dtypes {
 public:
  static const Dtypes& get() {
    static const Dtypes dtypes;
    return dtypes;
  }
  // -1: a dtype that no kernel takes.
  int known(int32_t running) const { return running >= 0 && running < kMost ? known_[running] : -1; }
  int32_t running(int known) const { return running_[known]; }

 private:
  static constexpr int kMost = 64;

  Dtypes() {
    std::fill(known_, known_ + kMost, -1);
    std::fill(running_, running_ + kMost, -1);
    add(Dtype::Byte, aoti_torch_dtype_uint8());
    add(Dtype::Char, aoti_torch_dtype_int8());
    add(Dtype::Short, aoti_torch_dtype_int16());
    add(Dtype::Int, aoti_torch_dtype_int32());
    add(Dtype::Long, aoti_torch_dtype_int64());
    add(Dtype::Half, aoti_torch_dtype_float16());
    add(Dtype::Float, aoti_torch_dtype_float32());
    add(Dtype::Double, aoti_torch_dtype_float64());
    add(Dtype::Bool, aoti_torch_dtype_bool());
    add(Dtype::BFloat16, aoti_torch_dtype_bfloat16());
  }
  void add(Dtype known, int32_t running) {
    if (running < 0 || running >= kMost) return;
    known_[running] = static_cast<int>(known);
    running_[static_cast<int>(known)] = running;
  }

  int known_[kMost];
  int32_t running_[kMost];
};

inline int32_t running_dtype(const Tensor& tensor) {
  int32_t number = 0;
  check(aoti_torch_get_dtype(tensor.get(), &number), "aoti_torch_get_dtype");
  return number;
}

// A dtype as Python names it.
inline std::string dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::Byte: return "uint8";
    case Dtype::Char: return "int8";
    case Dtype::Short: return "int16";
    case Dtype::Int: return "int32";
    case Dtype::Long: return "int64";
    case Dtype::Half: return "float16";
    case Dtype::Float: return "float32";
    case Dtype::Double: return "float64";
    case Dtype::ComplexFloat: return "complex64";
    case Dtype::ComplexDouble: return "complex128";
    case Dtype::Bool: return "bool";
    case Dtype::BFloat16: return "bfloat16";
    default: return torch::headeronly::toString(dtype);
  }
}

// "float32 [2, 3] on the CPU".
inline std::string described(const Tensor& tensor) {
  std::ostringstream text;
  text << dtype_name(tensor.scalar_type()) << " [";
  for (size_t d = 0; d < tensor.sizes().size(); ++d) text << (d == 0 ? "" : ", ") << tensor.sizes()[d];
  text << "]" << (tensor.is_contiguous() ? "" : ", not contiguous,");
  text << (tensor.is_cuda() ? " on a GPU" : tensor.is_cpu() ? " on the CPU" : " on another device");
  return text.str();
}

}  // namespace opsmith::shipped
