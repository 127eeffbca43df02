// The blocks of a cluster, which run at the same time, and the state of their barrier.
#pragma once

#include <algorithm>
#include <vector>

#include "threads.h"

namespace opsmith::emulator {

class Neighbours;
class Races;
class SharedMemory;

// A block of a launch without clusters is a cluster by itself.
struct Cluster {
  struct Member {
    Block* block;
    Races* races;
    SharedMemory* shared;
    Neighbours* neighbours;
  };

  std::vector<Member> members;  // by rank
  uint32_t first_serial = 1, size = 1;  // of its blocks
  uint32_t barriers = 0;        // complete so far
  uint32_t arrived = 0;         // threads that have arrived at the next one
  uint32_t waiting = 0;         // threads that wait for it
  // Numbers of releases at which barriers were complete: the first one, the latest one, and the one before it.
  uint64_t first_complete = 0, complete = 0, formerly_complete = 0;
  // The latest release that the blocks had seen when they arrived at the latest barrier, and so far at the next one.
  uint64_t view = 0, next_view = 0;

  // When its blocks begin; `serial` is that of the first.
  void begin(uint32_t serial) {
    first_serial = serial;
    size = static_cast<uint32_t>(members.size());
    barriers = arrived = waiting = 0;
    first_complete = complete = formerly_complete = view = next_view = 0;
  }

  uint32_t threads() const { return size * members[0].block->count; }
  bool holds(uint32_t serial) const { return serial - first_serial < size; }
  const Member& member(uint32_t serial) const { return members[serial - first_serial]; }

  // Threads that have returned without arriving at the next barrier.
  uint32_t absent() const {
    uint32_t count = 0;
    for (const Member& each : members) {
      if (each.block->done == 0) continue;
      for (const Thread& thread : each.block->threads) {
        count += thread.state == State::done && each.block->arrivals(thread.number) == barriers;
      }
    }
    return count;
  }
};

}  // namespace opsmith::emulator
