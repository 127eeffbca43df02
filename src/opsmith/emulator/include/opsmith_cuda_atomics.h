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

// *address = function(*address), and what it was before. Neither instrumented nor inlined: the runtime has been told.
template <typename Value, typename Function>
__attribute__((noinline, no_sanitize("thread", "undefined"))) Value exchanged(Value* address, Function function) {
  using Word = typename Bits<sizeof(Value)>::type;
  Word* const place = reinterpret_cast<Word*>(address);
  Word before = __atomic_load_n(place, __ATOMIC_SEQ_CST);
  for (;;) {
    Value value;
    memcpy(&value, &before, sizeof(Value));
    const Value changed = function(value);
    Word after;
    memcpy(&after, &changed, sizeof(Value));
    if (__atomic_compare_exchange_n(place, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return value;
  }
}

// What an operation does to memory, as opsmith_atomic_access takes it.
enum Atomic : int { changes = 0, compares_and_swaps = 2, only_writes = 3 };

template <Atomic KIND = changes, typename Value, typename Function>
__attribute__((always_inline)) inline Value atomically(Value* address, Function function) {
  opsmith_atomic_access(address, sizeof(Value), KIND);
  const Value before = exchanged(address, function);
  // What has been released since then may be what the value tells of: a loop that waits for a flag ends by it.
  opsmith_atomic_access(address, sizeof(Value), 1);
  return before;
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
OPSMITH_ATOMIC(atomicSub, int, static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(value)))
OPSMITH_ATOMIC(atomicSub, unsigned, old - value)
OPSMITH_EXCHANGE(int)
OPSMITH_EXCHANGE(unsigned)
OPSMITH_EXCHANGE(unsigned long long)
OPSMITH_EXCHANGE(long long)
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

#define OPSMITH_COMPARE_AND_SWAP_AS(name, type)                                                                \
  __forceinline__ type name(type* address, type compare, type value) {                                                  \
    return opsmith::emulator::atomically<opsmith::emulator::compares_and_swaps>(                                                                      \
        address, [compare, value](type old) -> type { return old == compare ? value : old; });                \
  }
#define OPSMITH_COMPARE_AND_SWAP(type)                  \
  OPSMITH_COMPARE_AND_SWAP_AS(atomicCAS, type)          \
  OPSMITH_COMPARE_AND_SWAP_AS(atomicCAS_block, type)    \
  OPSMITH_COMPARE_AND_SWAP_AS(atomicCAS_system, type)
OPSMITH_COMPARE_AND_SWAP(int)
OPSMITH_COMPARE_AND_SWAP(unsigned)
OPSMITH_COMPARE_AND_SWAP(unsigned long long)
OPSMITH_COMPARE_AND_SWAP(unsigned short)
#undef OPSMITH_COMPARE_AND_SWAP
#undef OPSMITH_COMPARE_AND_SWAP_AS
