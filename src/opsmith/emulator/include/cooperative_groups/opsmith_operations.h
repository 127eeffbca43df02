// The operations that CUDA names for reductions and scans. `less` and `greater` give the lesser and the greater value.
#pragma once

namespace cooperative_groups {

#define OPSMITH_OPERATION(name, expression)                         \
  template <typename Value>                                         \
  struct name {                                                     \
    __forceinline__ Value operator()(Value a, Value b) const {      \
      return static_cast<Value>(expression);                        \
    }                                                               \
  };
OPSMITH_OPERATION(plus, a + b)
OPSMITH_OPERATION(less, b < a ? b : a)
OPSMITH_OPERATION(greater, a < b ? b : a)
OPSMITH_OPERATION(bit_and, a& b)
OPSMITH_OPERATION(bit_or, a | b)
OPSMITH_OPERATION(bit_xor, a ^ b)
#undef OPSMITH_OPERATION

}  // namespace cooperative_groups
