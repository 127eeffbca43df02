// Barriers, fences, and the operations of a warp.
#pragma once

#include <string.h>

// The default of `line` is the line of the call.
__forceinline__ void __syncthreads(int line = __builtin_LINE()) { opsmith::emulator::opsmith_barrier(0, 0, line); }
__forceinline__ int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  return opsmith::emulator::opsmith_barrier(1, predicate, line);
}
__forceinline__ int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  return opsmith::emulator::opsmith_barrier(2, predicate, line);
}
__forceinline__ int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  return opsmith::emulator::opsmith_barrier(3, predicate, line);
}
__forceinline__ void __syncwarp(unsigned mask = 0xffffffffu) { opsmith::emulator::opsmith_sync_warp(mask); }
__forceinline__ void __threadfence_block() { opsmith::emulator::opsmith_fence(0); }
__forceinline__ void __threadfence() { opsmith::emulator::opsmith_fence(1); }
__forceinline__ void __threadfence_system() { opsmith::emulator::opsmith_fence(2); }
__forceinline__ void __nanosleep(unsigned) { opsmith::emulator::opsmith_yield(); }
__forceinline__ long long clock64() { return static_cast<long long>(opsmith::emulator::opsmith_clock()); }
__forceinline__ clock_t clock() { return static_cast<clock_t>(opsmith::emulator::opsmith_clock()); }
__forceinline__ void __trap() { opsmith::emulator::opsmith_assertion_failed("__trap()", __FILE__, __LINE__); }
__forceinline__ void __brkpt() {}
// Counters of a profiler, of which there is none.
inline void __prof_trigger(int) {}
inline unsigned __pm0() { return 0; }
inline unsigned __pm1() { return 0; }
inline unsigned __pm2() { return 0; }
inline unsigned __pm3() { return 0; }
// A launch begins when the one before it has ended, whether or not that has let it begin earlier.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}

namespace opsmith::emulator {

__forceinline__ unsigned lane() {
  const Dim thread = opsmith_thread_index(), size = opsmith_block_size();
  return (thread.x + size.x * (thread.y + size.y * thread.z)) % 32;
}

template <typename Value>
__forceinline__ Value shuffled(unsigned mask, Value value, int source) {
  static_assert(sizeof(Value) <= 16, "a shuffle moves at most 16 bytes");
  opsmith_shuffle(mask, &value, sizeof(Value), source & 31, 1);
  return value;
}

struct Everybody {
  uint64_t values[32] = {};
  unsigned mask;

  __forceinline__ Everybody(unsigned mask, uint64_t own, int kind) : mask(mask) { opsmith_gather(mask, own, values, kind); }
  bool has(int lane) const { return mask >> lane & 1; }
};

}  // namespace opsmith::emulator

template <typename Value>
__forceinline__ Value __shfl_sync(unsigned mask, Value value, int source, int width = 32) {
  const int lane = opsmith::emulator::lane();
  return opsmith::emulator::shuffled(mask, value, (lane & ~(width - 1)) + (source & (width - 1)));
}

template <typename Value>
__forceinline__ Value __shfl_up_sync(unsigned mask, Value value, unsigned delta, int width = 32) {
  const int lane = opsmith::emulator::lane(), source = lane - static_cast<int>(delta);
  return opsmith::emulator::shuffled(mask, value, source < (lane & ~(width - 1)) ? lane : source);
}

template <typename Value>
__forceinline__ Value __shfl_down_sync(unsigned mask, Value value, unsigned delta, int width = 32) {
  const int lane = opsmith::emulator::lane(), source = lane + static_cast<int>(delta);
  return opsmith::emulator::shuffled(mask, value, source > (lane | (width - 1)) ? lane : source);
}

template <typename Value>
__forceinline__ Value __shfl_xor_sync(unsigned mask, Value value, int lanes, int width = 32) {
  const int lane = opsmith::emulator::lane(), source = lane ^ lanes;
  return opsmith::emulator::shuffled(mask, value, source > (lane | (width - 1)) ? lane : source);
}

__forceinline__ unsigned __activemask() { return opsmith::emulator::opsmith_active_mask(); }

__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate) {
  const opsmith::emulator::Everybody all(mask, predicate != 0, 2);
  unsigned ballot = 0;
  for (int lane = 0; lane < 32; ++lane) ballot |= static_cast<unsigned>(all.has(lane) && all.values[lane] != 0) << lane;
  return ballot;
}
__forceinline__ int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
__forceinline__ int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }
__forceinline__ int __uni_sync(unsigned mask, int predicate) {
  const unsigned ballot = __ballot_sync(mask, predicate);
  return ballot == 0 || ballot == mask;
}

template <typename Value>
__forceinline__ unsigned __match_any_sync(unsigned mask, Value value) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(Value));
  const opsmith::emulator::Everybody all(mask, bits, 3);
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) same |= static_cast<unsigned>(all.has(lane) && all.values[lane] == bits) << lane;
  return same;
}

template <typename Value>
__forceinline__ unsigned __match_all_sync(unsigned mask, Value value, int* all_same) {
  const bool same = __match_any_sync(mask, value) == mask;
  // Every lane must come to the same answer: those that differ know of themselves only.
  *all_same = same;
  return same ? mask : 0;
}

namespace opsmith::emulator {

template <typename Value, typename Function>
__forceinline__ Value reduced(unsigned mask, Value value, Function function) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(Value));
  const Everybody all(mask, bits, 4);
  bool first = true;
  Value result{};
  for (int lane = 0; lane < 32; ++lane) {
    if (!all.has(lane)) continue;
    Value other;
    memcpy(&other, &all.values[lane], sizeof(Value));
    result = first ? other : function(result, other);
    first = false;
  }
  return result;
}

}  // namespace opsmith::emulator

#define OPSMITH_REDUCE(name, type, expression)                                                             \
  __forceinline__ type __reduce_##name##_sync(unsigned mask, type value) {                                          \
    return opsmith::emulator::reduced(mask, value, [](type a, type b) -> type { return expression; });     \
  }
OPSMITH_REDUCE(add, unsigned, a + b)
OPSMITH_REDUCE(add, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
OPSMITH_REDUCE(min, unsigned, a < b ? a : b)
OPSMITH_REDUCE(min, int, a < b ? a : b)
OPSMITH_REDUCE(max, unsigned, a > b ? a : b)
OPSMITH_REDUCE(max, int, a > b ? a : b)
OPSMITH_REDUCE(and, unsigned, a & b)
OPSMITH_REDUCE(or, unsigned, a | b)
OPSMITH_REDUCE(xor, unsigned, a ^ b)
#undef OPSMITH_REDUCE
