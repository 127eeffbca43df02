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

// An address is one for all kinds of memory.
#define OPSMITH_KIND(kind)                                                                                             \
  inline size_t __cvta_generic_to_##kind(const void* pointer) { return reinterpret_cast<size_t>(pointer); }             \
  inline void* __cvta_##kind##_to_generic(size_t address) { return reinterpret_cast<void*>(address); }
OPSMITH_KIND(global)
OPSMITH_KIND(shared)
OPSMITH_KIND(constant)
OPSMITH_KIND(local)
OPSMITH_KIND(grid_constant)
#undef OPSMITH_KIND

#define OPSMITH_IS(name, kind)                                                                    \
  inline unsigned __is##name(const void* pointer) {                                               \
    return opsmith::emulator::opsmith_space(pointer) == opsmith::emulator::Space::kind;           \
  }
OPSMITH_IS(Global, global)
OPSMITH_IS(Shared, shared)
OPSMITH_IS(Constant, constant)
OPSMITH_IS(Local, local)
#undef OPSMITH_IS

__forceinline__ void* __nv_aligned_device_malloc(size_t bytes, size_t alignment) {
  return opsmith::emulator::opsmith_allocate(bytes, alignment);
}
