// Prefixes over a group of lanes.
#pragma once

#include "../cooperative_groups.h"
#include "opsmith_operations.h"

namespace cooperative_groups {

// Lane by lane, the values of all lanes up to it, itself included.
template <typename Group, typename Value, typename Operation>
__forceinline__ auto inclusive_scan(const Group& group, Value value, Operation operation) {
  std::remove_cvref_t<decltype(operation(value, value))> result = value;
  for (unsigned distance = 1; distance < group.size(); distance *= 2) {
    const auto before = group.shfl_up(result, distance);
    if (group.thread_rank() >= distance) result = operation(result, before);
  }
  return result;
}

// Without itself; the first lane gets Value{}.
template <typename Group, typename Value, typename Operation>
__forceinline__ auto exclusive_scan(const Group& group, Value value, Operation operation) {
  const auto before = group.shfl_up(inclusive_scan(group, value, operation), 1);
  return group.thread_rank() == 0 ? std::remove_cvref_t<decltype(before)>{} : before;
}

template <typename Group, typename Value>
__forceinline__ Value inclusive_scan(const Group& group, Value value) {
  return inclusive_scan(group, value, plus<Value>());
}
template <typename Group, typename Value>
__forceinline__ Value exclusive_scan(const Group& group, Value value) {
  return exclusive_scan(group, value, plus<Value>());
}

}  // namespace cooperative_groups
