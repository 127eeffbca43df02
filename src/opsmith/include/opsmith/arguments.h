// The arguments of a launch by name, held against the kernel's parameters while the program runs: counted, converted,
// and refused where they do not fit.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "host.h"
#include "tensors.h"

namespace opsmith __attribute__((visibility("hidden"))) {

namespace detail {

template <typename Type>
inline constexpr bool is_half = std::is_same_v<Type, half> || std::is_same_v<Type, bfloat16>;

template <typename Type>
constexpr ValueKind number_kind() {
  if constexpr (std::is_same_v<Type, half>) return ValueKind::half;
  else if constexpr (std::is_same_v<Type, bfloat16>) return ValueKind::bfloat16;
  else if constexpr (std::is_same_v<Type, bool>) return ValueKind::boolean;
  else if constexpr (std::is_floating_point_v<Type>) return ValueKind::floating;
  else if constexpr (std::is_integral_v<Type>) return std::is_signed_v<Type> ? ValueKind::integer : ValueKind::natural;
  else if constexpr (std::is_pointer_v<Type>) return ValueKind::pointer;
  else return ValueKind::other;
}

// An argument and its C++ type.
struct Argument {
  ValueKind kind = ValueKind::other;
  ValueKind element = ValueKind::other;  // of a pointer
  bool to_const = false;
  uint64_t size = 0;
  uint64_t element_size = 0;  // 0: not known
  union {
    int64_t integer;
    uint64_t natural;
    double real;
    const void* address;  // a pointer; of a struct, where it is
  };
  Argument() : natural(0) {}
};

template <typename Type>
Argument argument(const Type& value) {
  static_assert(!std::is_same_v<Type, Tensor>, "a kernel takes the elements of a tensor: opsmith::data<float>(x)");
  static_assert(std::is_trivially_copyable_v<Type>, "a kernel takes numbers, pointers and plain structs");
  Argument made;
  made.kind = number_kind<Type>();
  made.size = sizeof(Type);
  if constexpr (std::is_null_pointer_v<Type>) {
    made.kind = ValueKind::pointer;
    made.address = nullptr;
  } else if constexpr (std::is_pointer_v<Type>) {
    using Element = std::remove_pointer_t<Type>;
    made.to_const = std::is_const_v<Element>;
    made.element = number_kind<std::remove_cv_t<Element>>();
    if constexpr (!std::is_void_v<Element> && !std::is_function_v<Element>) {
      if (made.element != ValueKind::other) made.element_size = sizeof(Element);
    }
    made.address = reinterpret_cast<const void*>(value);
  } else if constexpr (std::is_enum_v<Type>) {
    return argument(static_cast<std::underlying_type_t<Type>>(value));
  } else if constexpr (is_half<Type>) {
    made.real = static_cast<float>(value);
  } else if constexpr (std::is_floating_point_v<Type>) {
    made.real = static_cast<double>(value);
  } else if constexpr (std::is_signed_v<Type> && std::is_integral_v<Type>) {
    made.integer = value;
  } else if constexpr (std::is_integral_v<Type>) {
    made.natural = value;
  } else {
    made.address = &value;
  }
  return made;
}

// The conversion of a launch's arguments.
class Conversion {
 public:
  Conversion(std::string_view kernel, const KernelInfo& info) : kernel_(kernel), info_(info) {}

  // `slots`: a word for each argument; `pointers`: where the driver finds each.
  void convert(const Argument* given, size_t count, uint64_t* slots, void** pointers) {
    if (count != info_.count) {
      std::string names;
      for (uint64_t i = 0; i < info_.count; ++i) names += (i == 0 ? " (" : ", ") + named(i);
      refuse("it takes ", info_.count, info_.count == 1 ? " argument" : " arguments", names,
             info_.count == 0 ? "" : ")", ", not ", count);
    }
    for (size_t i = 0; i < count; ++i) {
      position_ = i;
      pointers[i] = &slots[i];
      slots[i] = 0;
      if (info_.parameters[i].kind == ValueKind::other) {
        if (given[i].kind != ValueKind::other) mismatch("a struct", given[i]);
        if (given[i].size != info_.parameters[i].size) {
          wrong("has ", info_.parameters[i].size, " bytes, and was given a struct of ", given[i].size);
        }
        pointers[i] = const_cast<void*>(given[i].address);
      } else {
        slots[i] = converted(info_.parameters[i], given[i]);
      }
    }
  }

 private:
  uint64_t converted(const ParameterInfo& parameter, const Argument& given) const {
    switch (parameter.kind) {
      case ValueKind::integer: return integer(parameter, given);
      case ValueKind::natural: return integer(parameter, given);
      case ValueKind::boolean:
        if (!is_integer(given)) mismatch("a bool", given);
        if (given.natural > 1) wrong("takes true or false, and was given ", shown(given));
        return given.natural;
      case ValueKind::pointer: return pointer(parameter, given);
      default: return floating(parameter, given);
    }
  }

  static bool is_integer(const Argument& given) {
    return given.kind == ValueKind::integer || given.kind == ValueKind::natural || given.kind == ValueKind::boolean;
  }

  uint64_t integer(const ParameterInfo& parameter, const Argument& given) const {
    if (!is_integer(given)) mismatch("an integer", given);
    const int bits = static_cast<int>(8 * parameter.size);
    const bool negative = given.kind == ValueKind::integer && given.integer < 0;
    const bool is_signed = parameter.kind == ValueKind::integer;
    const uint64_t most = ~uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0));
    const bool fits = negative ? is_signed && given.integer >= -static_cast<int64_t>(most) - 1 : given.natural <= most;
    if (!fits) {
      wrong("holds ", is_signed ? -static_cast<int64_t>(most) - 1 : int64_t{0}, " to ", most, ", and ", shown(given),
            " does not fit");
    }
    return given.natural;  // the lower bytes, first in memory
  }

  uint64_t floating(const ParameterInfo& parameter, const Argument& given) const {
    double value = given.real;
    if (is_integer(given)) {
      const bool is_signed = given.kind == ValueKind::integer;
      value = is_signed ? static_cast<double>(given.integer) : static_cast<double>(given.natural);
    } else if (given.kind == ValueKind::pointer || given.kind == ValueKind::other) {
      mismatch("a number", given);
    }
    uint64_t slot = 0;
    bool fits = true;
    const auto put = [&](auto narrow) {
      fits = !std::isfinite(value) || std::isfinite(static_cast<float>(narrow)) || sizeof narrow == sizeof(double);
      std::memcpy(&slot, &narrow, sizeof narrow);
    };
    if (parameter.kind == ValueKind::half) {
      put(half(static_cast<float>(value)));
    } else if (parameter.kind == ValueKind::bfloat16) {
      put(bfloat16(static_cast<float>(value)));
    } else if (parameter.size == sizeof(float)) {
      put(static_cast<float>(value));
    } else {
      put(value);
    }
    if (!fits) wrong("cannot hold ", value, ": it is too large");
    return slot;
  }

  uint64_t pointer(const ParameterInfo& parameter, const Argument& given) const {
    if (given.kind != ValueKind::pointer) mismatch("a pointer", given);
    const bool known = parameter.element_size != 0 && given.element_size != 0;
    if (known && (parameter.element != given.element || parameter.element_size != given.element_size)) {
      wrong("was given a pointer to ", type_name(given.element, given.element_size));
    }
    if (given.to_const && !parameter.is_read_only && given.address != nullptr) {
      wrong("may be written, and was given a pointer to const: opsmith::data<float>(x) is one to write");
    }
    const auto address = reinterpret_cast<uintptr_t>(given.address);
    if (parameter.alignment > 1 && address % parameter.alignment != 0) {
      wrong("is read at multiples of ", parameter.alignment, " bytes, and the address given is ",
            address % parameter.alignment, " bytes after one");
    }
    return address;
  }

  static std::string type_name(ValueKind kind, uint64_t size) {
    const std::string bits = std::to_string(8 * size);
    switch (kind) {
      case ValueKind::integer: return "int" + bits;
      case ValueKind::natural: return "uint" + bits;
      case ValueKind::boolean: return "bool";
      case ValueKind::floating: return size == 4 ? "float" : "double";
      case ValueKind::half: return "half";
      case ValueKind::bfloat16: return "bfloat16";
      case ValueKind::pointer: return "pointers";
      default: return "a struct";
    }
  }

  static std::string shown(const Argument& given) {
    return given.kind == ValueKind::integer ? std::to_string(given.integer) : std::to_string(given.natural);
  }

  std::string named(uint64_t position) const {
    const std::string name = info_.parameters[position].name;
    return name.empty() ? "argument " + std::to_string(position + 1) : name;
  }

  [[noreturn]] void mismatch(const char* wanted, const Argument& given) const {
    const char* what = is_integer(given)               ? "an integer"
                       : given.kind == ValueKind::pointer   ? "a pointer"
                       : given.kind == ValueKind::other     ? "a struct"
                                                       : "a floating-point number";
    wrong("takes ", wanted, ", and was given ", what);
  }

  template <typename... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    const std::string name = info_.parameters[position_].name;
    const std::string place = name.empty() ? std::to_string(position_ + 1) : "'" + name + "'";
    refuse("parameter ", place, " (", info_.parameters[position_].type, ") ", parts...);
  }
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(kernel_, ": ", parts..., ".\n  ", info_.declared);
  }

  std::string_view kernel_;
  const KernelInfo& info_;
  size_t position_ = 0;
};

}  // namespace detail

}  // namespace opsmith
