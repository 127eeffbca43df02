// Reductions over a group of lanes, in the order in which CUDA's own header combines values.
#pragma once

#include "../cooperative_groups.h"
#include "opsmith_operations.h"
#include "scan.h"

namespace cooperative_groups {

// A tile: each lane with its partner, then pairs with pairs.
template <unsigned SIZE, typename Parent, typename Value, typename Operation>
__forceinline__ auto reduce(const thread_block_tile<SIZE, Parent>& group, Value value, Operation operation) {
  std::remove_cvref_t<decltype(operation(value, value))> result = value;
  for (unsigned distance = SIZE / 2; distance > 0; distance /= 2) {
    result = operation(result, group.shfl_xor(result, distance));
  }
  return result;
}

// Lanes with gaps: the last one's prefix. A whole warp is a tile.
template <typename Value, typename Operation>
__forceinline__ auto reduce(const coalesced_group& group, Value value, Operation operation) {
  std::remove_cvref_t<decltype(operation(value, value))> result = value;
  if (group.size() == 32) {
    for (unsigned distance = 16; distance > 0; distance /= 2) {
      result = operation(result, group.shfl(result, static_cast<int>(group.thread_rank() ^ distance)));
    }
    return result;
  }
  result = inclusive_scan(group, value, operation);
  return group.shfl(result, static_cast<int>(group.size()) - 1);
}

}  // namespace cooperative_groups
