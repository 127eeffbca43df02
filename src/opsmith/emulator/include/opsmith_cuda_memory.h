// Loads and stores with a word about caches, which a CPU has no use for.
#pragma once

namespace opsmith::emulator {
template <typename Value>
struct NotDeduced {
  using type = Value;
};
}  // namespace opsmith::emulator

#define OPSMITH_LOAD(name)                \
  template <typename Value>               \
  __forceinline__ Value name(const Value* from) {  \
    return *from;                         \
  }
OPSMITH_LOAD(__ldg)
OPSMITH_LOAD(__ldca)
OPSMITH_LOAD(__ldcg)
OPSMITH_LOAD(__ldcs)
OPSMITH_LOAD(__ldlu)
OPSMITH_LOAD(__ldcv)
#undef OPSMITH_LOAD

// CUDA has a function a type, so that the value is converted to what the pointer points to.
#define OPSMITH_STORE(name)                                                                                \
  template <typename Value>                                                                                \
  __forceinline__ void name(Value* to, const typename opsmith::emulator::NotDeduced<Value>::type value) {  \
    *to = value;                                                                                           \
  }
OPSMITH_STORE(__stwb)
OPSMITH_STORE(__stcg)
OPSMITH_STORE(__stcs)
OPSMITH_STORE(__stwt)
#undef OPSMITH_STORE

inline size_t __cvta_generic_to_shared(const void* pointer) { return reinterpret_cast<size_t>(pointer); }
inline size_t __cvta_generic_to_global(const void* pointer) { return reinterpret_cast<size_t>(pointer); }
