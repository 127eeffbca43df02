// Atomic operations, on the types people use them with. Blocks run on several cores, so they are atomic here too.
#pragma once

#include <string.h>

namespace opsmith::emulator {

template <size_t BYTES>
struct Bits;
template <>
struct Bits<2> {
  using type = uint16_t;
};
template <>
struct Bits<4> {
  using type = uint32_t;
};
template <>
struct Bits<8> {
  using type = uint64_t;
};
template <>
struct Bits<16> {
  using type = unsigned __int128;
};

#define OPSMITH_UNWATCHED no_sanitize("thread", "undefined")  // the runtime has been notified

template <typename Word>
__attribute__((OPSMITH_UNWATCHED)) inline Word loaded(Word* place) {
  return __atomic_load_n(place, __ATOMIC_SEQ_CST);
}

// Replaces `before` with `after`. If another value is there, it stays, and `before` is set to it.
template <typename Word>
__attribute__((OPSMITH_UNWATCHED)) inline bool replaced(Word* place, Word& before, Word after) {
  return __atomic_compare_exchange_n(place, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

// Of 16 bytes, the functions above are calls of a library; this is an instruction.
#if defined(__x86_64__)
#define OPSMITH_HAS_16_BYTES target("cx16")
#else
#define OPSMITH_HAS_16_BYTES
#endif
__attribute__((noinline, OPSMITH_HAS_16_BYTES, OPSMITH_UNWATCHED)) inline bool replaced(
    unsigned __int128* place, unsigned __int128& before, unsigned __int128 after) {
  const unsigned __int128 wanted = before;
  before = __sync_val_compare_and_swap(place, wanted, after);
  return before == wanted;
}
#undef OPSMITH_HAS_16_BYTES

__attribute__((OPSMITH_UNWATCHED)) inline unsigned __int128 loaded(unsigned __int128* place) {
  unsigned __int128 found = 0;
  replaced(place, found, found);
  return found;
}

// *address = function(*address), and what it was before. Neither instrumented nor inlined.
template <typename Value, typename Function>
__attribute__((noinline, OPSMITH_UNWATCHED)) Value exchanged(Value* address, Function function) {
  using Word = typename Bits<sizeof(Value)>::type;
  Word* const place = reinterpret_cast<Word*>(address);
  Word before = loaded(place);
  for (;;) {
    Value value;
    memcpy(&value, &before, sizeof(Value));
    const Value changed = function(value);
    Word after;
    memcpy(&after, &changed, sizeof(Value));
    if (replaced(place, before, after)) return value;
  }
}
#undef OPSMITH_UNWATCHED

// What an operation does to memory, as opsmith_atomic_access takes it.
enum Atomic : int { changes = 0, compares_and_swaps = 2, only_writes = 3 };

template <Atomic KIND = changes, typename Value, typename Function>
__attribute__((always_inline)) inline Value atomically(Value* address, Function function) {
  opsmith_atomic_access(address, sizeof(Value), KIND);
  return exchanged(address, function);
}

template <typename Value>
__attribute__((no_sanitize("undefined"))) inline Value wrapping_sum(Value a, Value b) {
  return a + b;
}

}  // namespace opsmith::emulator

#define OPSMITH_ATOMIC_AS(name, type, kind, expression)                                  \
  __forceinline__ type name(type* address, type value) {                                 \
    return opsmith::emulator::atomically<opsmith::emulator::kind>(                       \
        address, [value](type old) -> type { return expression; });                      \
  }
#define OPSMITH_ATOMIC_OF(name, type, kind, expression)    \
  OPSMITH_ATOMIC_AS(name, type, kind, expression)          \
  OPSMITH_ATOMIC_AS(name##_block, type, kind, expression)  \
  OPSMITH_ATOMIC_AS(name##_system, type, kind, expression)
#define OPSMITH_ATOMIC(name, type, expression) OPSMITH_ATOMIC_OF(name, type, changes, expression)
#define OPSMITH_EXCHANGE(type) OPSMITH_ATOMIC_OF(atomicExch, type, only_writes, (static_cast<void>(old), value))
#define OPSMITH_ATOMIC_INTEGERS(name, expression)      \
  OPSMITH_ATOMIC(name, int, expression)                \
  OPSMITH_ATOMIC(name, unsigned, expression)           \
  OPSMITH_ATOMIC(name, unsigned long long, expression) \
  OPSMITH_ATOMIC(name, long long, expression)

OPSMITH_ATOMIC(atomicAdd, int, static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value)))
OPSMITH_ATOMIC(atomicAdd, unsigned, old + value)
OPSMITH_ATOMIC(atomicAdd, unsigned long long, old + value)
OPSMITH_ATOMIC(atomicAdd, float, old + value)
OPSMITH_ATOMIC(atomicAdd, double, old + value)
// Each part atomically; here all of them at once.
OPSMITH_ATOMIC(atomicAdd, float2, (float2{old.x + value.x, old.y + value.y}))
OPSMITH_ATOMIC(atomicAdd, float4, (float4{old.x + value.x, old.y + value.y, old.z + value.z, old.w + value.w}))
OPSMITH_ATOMIC(atomicSub, int, static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(value)))
OPSMITH_ATOMIC(atomicSub, unsigned, old - value)
OPSMITH_EXCHANGE(int)
OPSMITH_EXCHANGE(unsigned)
OPSMITH_EXCHANGE(unsigned long long)
OPSMITH_EXCHANGE(float)
OPSMITH_ATOMIC_INTEGERS(atomicMin, old < value ? old : value)
OPSMITH_ATOMIC_INTEGERS(atomicMax, old > value ? old : value)
OPSMITH_ATOMIC_INTEGERS(atomicAnd, old& value)
OPSMITH_ATOMIC_INTEGERS(atomicOr, old | value)
OPSMITH_ATOMIC_INTEGERS(atomicXor, old ^ value)
OPSMITH_ATOMIC(atomicInc, unsigned, old >= value ? 0u : old + 1u)
OPSMITH_ATOMIC(atomicDec, unsigned, old == 0u || old > value ? value : old - 1u)
#undef OPSMITH_ATOMIC_AS
#undef OPSMITH_ATOMIC
#undef OPSMITH_ATOMIC_OF
#undef OPSMITH_EXCHANGE
#undef OPSMITH_ATOMIC_INTEGERS

#define OPSMITH_COMPARE_AND_SWAP_AS(name, type)                                                   \
  __forceinline__ type name(type* address, type compare, type value) {                           \
    return opsmith::emulator::atomically<opsmith::emulator::compares_and_swaps>(                 \
        address, [compare, value](type old) -> type { return old == compare ? value : old; });   \
  }
#define OPSMITH_COMPARE_AND_SWAP(type)                  \
  OPSMITH_COMPARE_AND_SWAP_AS(atomicCAS, type)          \
  OPSMITH_COMPARE_AND_SWAP_AS(atomicCAS_block, type)    \
  OPSMITH_COMPARE_AND_SWAP_AS(atomicCAS_system, type)
OPSMITH_COMPARE_AND_SWAP(int)
OPSMITH_COMPARE_AND_SWAP(unsigned)
OPSMITH_COMPARE_AND_SWAP(unsigned long long)
OPSMITH_COMPARE_AND_SWAP_AS(atomicCAS, unsigned short)
#undef OPSMITH_COMPARE_AND_SWAP
#undef OPSMITH_COMPARE_AND_SWAP_AS

// --- Any type of 16 bytes, by its bits ---------------------------------------------------------------------------------

namespace opsmith::emulator {

template <typename Value>
concept Sixteen = sizeof(Value) == 16 && alignof(Value) >= 16 && __is_trivially_copyable(Value);

using Bits16 = unsigned __int128;

template <Sixteen Value>
__forceinline__ Value compared_and_swapped(Value* address, Value compare, Value value) {
  return atomically<compares_and_swaps>(address, [compare, value](Value old) -> Value {
    return __builtin_bit_cast(Bits16, old) == __builtin_bit_cast(Bits16, compare) ? value : old;
  });
}
template <Sixteen Value>
__forceinline__ Value put(Value* address, Value value) {
  return atomically<only_writes>(address, [value](Value) -> Value { return value; });
}

}  // namespace opsmith::emulator

#define OPSMITH_OF_16_BYTES(ending)                                                                        \
  template <opsmith::emulator::Sixteen Value>                                                              \
  __forceinline__ Value atomicCAS##ending(Value* address, Value compare, Value value) {                    \
    return opsmith::emulator::compared_and_swapped(address, compare, value);                               \
  }                                                                                                        \
  template <opsmith::emulator::Sixteen Value>                                                              \
  __forceinline__ Value atomicExch##ending(Value* address, Value value) {                                  \
    return opsmith::emulator::put(address, value);                                                         \
  }                                                                                                        \
  __forceinline__ void __u128AtomicCAS##ending(void* address, void* compare, void* value, void* before) {  \
    using Bits = opsmith::emulator::Bits16;                                                                \
    *static_cast<Bits*>(before) =                                                                          \
        atomicCAS##ending(static_cast<Bits*>(address), *static_cast<Bits*>(compare), *static_cast<Bits*>(value)); \
  }                                                                                                        \
  __forceinline__ void __u128AtomicExch##ending(void* address, void* value, void* before) {                \
    using Bits = opsmith::emulator::Bits16;                                                                \
    *static_cast<Bits*>(before) = atomicExch##ending(static_cast<Bits*>(address), *static_cast<Bits*>(value)); \
  }
OPSMITH_OF_16_BYTES()
OPSMITH_OF_16_BYTES(_block)
OPSMITH_OF_16_BYTES(_system)
#undef OPSMITH_OF_16_BYTES
