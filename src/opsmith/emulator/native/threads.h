// A block at work: its threads, what each of them does at the moment, and which one runs.
#pragma once

#include <vector>

#include "fibers.h"
#include "grid.h"

namespace opsmith::emulator {

constexpr uint32_t kLanes = 32;

enum class State : uint8_t { unstarted, ready, at_barrier, at_cluster_barrier, in_warp, converging, done };

// What a thread gives to, and gets from, an operation of its warp.
struct Exchange {
  uint32_t mask;
  int operation;
  int source;
  uint32_t bytes;
  alignas(16) unsigned char value[16];
  alignas(16) unsigned char received[16];
  uint64_t* gathered;
};

struct Thread {
  State state;
  bool fenced;           // since it last wrote to global memory?
  bool fenced_in_block;  // since it last wrote at all?
  bool wrote;            // to global memory, since its last fence
  uint32_t number;
  int result;      // of a barrier; the mask of a convergence
  uint32_t passes;  // of the scheduler, while converging
  uint32_t clock;  // synchronisations of its warp so far
  Dim index;
  uintptr_t pc;  // where it waits
  int line;      // of its barrier
  uint32_t releases;  // so far
  uint64_t view;      // the latest release that it has seen
  uintptr_t operated_at;  // where it has operated since its last access, in global memory
  Fiber* fiber;
};

// A thread at the barriers of its cluster.
struct Meeting {
  uint32_t arrivals = 0, waits = 0;  // so far; it has arrived and not yet waited where they differ
  uintptr_t pc = 0;                  // where it has arrived last
};

struct Block {
  explicit Block(const Launch& launch)
      : size(launch.block),
        count(launch.block.x * launch.block.y * launch.block.z),
        warps((count + kLanes - 1) / kLanes),
        threads(count),
        exchanges(count) {}

  const Dim size;
  const uint32_t count, warps;  // of threads, and of their warps
  std::vector<Thread> threads;
  std::vector<Exchange> exchanges;
  std::vector<Meeting> meetings;  // empty until a thread comes to a barrier of the cluster
  Thread* self = nullptr;  // the one that runs; null while the scheduler does
  Context scheduler;
  Dim index{};
  uint32_t serial = 0;  // its number in the grid, from 1
  uint32_t epoch = 0;   // barriers so far
  uint32_t done = 0, at_barrier = 0, in_warp = 0;  // how many threads are

  void begin(Dim its_index, uint64_t number) {
    index = its_index;
    serial = static_cast<uint32_t>(number) + 1;
    epoch = done = at_barrier = in_warp = 0;
    meetings.clear();
    for (uint32_t i = 0; i < count; ++i) {
      threads[i] = Thread{State::unstarted, false, false, false, i, 0, 0, 1, {}, 0, 0, 0, 0, 0, nullptr};
    }
  }

  Exchange& exchange() { return exchanges[self->number]; }

  Meeting& meeting() {
    if (meetings.empty()) meetings.resize(count);
    return meetings[self->number];
  }
  // Its barriers of the cluster so far.
  uint32_t arrivals(uint32_t thread) const { return meetings.empty() ? 0 : meetings[thread].arrivals; }

  Dim index_of(uint32_t i) const {
    return size.y == 1 && size.z == 1 ? Dim{i, 0, 0} : Dim{i % size.x, i / size.x % size.y, i / size.x / size.y};
  }

  // The running thread switches to the scheduler, which later switches back to it.
  void give_way() { self->fiber->context.switch_to(scheduler); }

  // The same for good: its stack is discarded as it is.
  [[noreturn]] void leave() {
    give_way();
    __builtin_unreachable();
  }
};

}  // namespace opsmith::emulator
