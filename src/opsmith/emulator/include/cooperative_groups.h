// CUDA's cooperative groups: within a warp, the block, the cluster. A barrier of the whole grid is refused when compiled.
#pragma once

#include <type_traits>

namespace cooperative_groups {

namespace details {

template <typename>
inline constexpr bool never = false;

inline unsigned rank_in_block() {
  const dim3 size = blockDim;
  return threadIdx.x + size.x * (threadIdx.y + size.y * threadIdx.z);
}

inline unsigned threads_in_block() {
  const dim3 size = blockDim;
  return size.x * size.y * size.z;
}

// The lanes of a tile of this warp. The last warp of a block may have fewer than 32 threads.
inline unsigned mask_of_tile(unsigned size) {
  const unsigned rank = rank_in_block(), first = rank & ~(size - 1), left = threads_in_block() - first;
  return ~0u >> (32 - (left < size ? left : size)) << (first % 32);
}

// The lane that has this rank among those of the mask. Beyond the last one, a lane that is not in the mask: the shuffle
// that reads from it is then reported.
inline int lane_of_rank(unsigned mask, unsigned rank) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) && rank-- == 0) return lane;
  }
  return __ffs(static_cast<int>(~mask)) - 1;
}

// The bits of `lanes` that the mask names, side by side: a set of lanes as a set of ranks.
inline unsigned as_ranks(unsigned mask, unsigned lanes) {
  unsigned ranks = 0;
  int rank = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) ranks |= (lanes >> lane & 1) << rank++;
  }
  return ranks;
}

// Makes the parts of groups.
struct Parts;

// The other lane's value, in pieces of what one shuffle can move.
template <typename Value>
__forceinline__ Value from_lane(unsigned mask, Value value, int lane) {
  static_assert(std::is_trivially_copyable_v<Value>, "a shuffle moves types that can be copied byte by byte");
  static_assert(sizeof(Value) <= 32, "a shuffle of a group moves at most 32 bytes");
  if constexpr (sizeof(Value) <= 16) {
    return opsmith::emulator::shuffled(mask, value, lane);
  } else {
    struct Piece {
      unsigned char bytes[16];
    };
    Piece pieces[2] = {};
    __builtin_memcpy(pieces, &value, sizeof(Value));
    for (Piece& piece : pieces) piece = opsmith::emulator::shuffled(mask, piece, lane);
    __builtin_memcpy(&value, pieces, sizeof(Value));
    return value;
  }
}

}  // namespace details

// --- Any group -------------------------------------------------------------------------------------------------------

// A block, or some lanes of a warp: what all groups can be passed as.
class thread_group {
 public:
  __forceinline__ void sync() const {
    if (is_block_) {
      __syncthreads();
    } else {
      __syncwarp(mask_);
    }
  }
  unsigned long long size() const { return is_block_ ? details::threads_in_block() : __popc(mask_); }
  unsigned long long num_threads() const { return size(); }
  unsigned long long thread_rank() const {
    return is_block_ ? details::rank_in_block() : __popc(mask_ & ((1u << opsmith::emulator::lane()) - 1));
  }

 protected:
  thread_group() : is_block_(true), mask_(0) {}
  explicit thread_group(unsigned mask) : is_block_(false), mask_(mask) {}

  bool is_block_;
  unsigned mask_;

  friend struct details::Parts;
};

// --- The block -------------------------------------------------------------------------------------------------------

class thread_block : public thread_group {
 public:
  __forceinline__ static void sync() { __syncthreads(); }
  static unsigned size() { return details::threads_in_block(); }
  static unsigned num_threads() { return details::threads_in_block(); }
  static unsigned thread_rank() { return details::rank_in_block(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }

  template <typename Token = void>
  void barrier_arrive() const {
    static_assert(
        details::never<Token>,
        "opsmith's emulator does not run barriers in two steps (thread_block::barrier_arrive): use sync()");
  }

 private:
  thread_block() = default;
  friend thread_block this_thread_block();
};

inline thread_block this_thread_block() { return {}; }

// --- Lanes of a warp ---------------------------------------------------------------------------------------------------

// Votes and matches, whose results name ranks in the group.
class lanes_group : public thread_group {
 public:
  __forceinline__ void sync() const { __syncwarp(mask_); }
  unsigned size() const { return static_cast<unsigned>(__popc(mask_)); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return static_cast<unsigned>(thread_group::thread_rank()); }
  unsigned meta_group_rank() const { return meta_group_rank_; }
  unsigned meta_group_size() const { return meta_group_size_; }

  __forceinline__ int any(int predicate) const { return __any_sync(mask_, predicate); }
  __forceinline__ int all(int predicate) const { return __all_sync(mask_, predicate); }
  __forceinline__ unsigned ballot(int predicate) const {
    return details::as_ranks(mask_, __ballot_sync(mask_, predicate));
  }
  template <typename Value>
  __forceinline__ unsigned match_any(Value value) const {
    return details::as_ranks(mask_, __match_any_sync(mask_, value));
  }
  template <typename Value>
  __forceinline__ unsigned match_all(Value value, int& same) const {
    return details::as_ranks(mask_, __match_all_sync(mask_, value, &same));
  }

  template <typename Value>
  __forceinline__ Value shfl_up(Value value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return from_rank(value, delta > rank ? rank : rank - delta);
  }
  template <typename Value>
  __forceinline__ Value shfl_down(Value value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return from_rank(value, delta >= size() - rank ? rank : rank + delta);
  }

 protected:
  lanes_group(unsigned mask, unsigned meta_group_rank, unsigned meta_group_size)
      : thread_group(mask), meta_group_rank_(meta_group_rank), meta_group_size_(meta_group_size) {}

  template <typename Value>
  __forceinline__ Value from_rank(Value value, unsigned rank) const {
    return details::from_lane(mask_, value, details::lane_of_rank(mask_, rank));
  }

 private:
  unsigned meta_group_rank_, meta_group_size_;
};

// The lanes that came to a place together.
class coalesced_group : public lanes_group {
 public:
  template <typename Value>
  __forceinline__ Value shfl(Value value, int rank) const {
    return from_rank(value, size() == 32 ? static_cast<unsigned>(rank) % 32 : static_cast<unsigned>(rank));
  }

 private:
  using lanes_group::lanes_group;
  friend struct details::Parts;
};

// A power of two of neighbouring threads.
template <unsigned SIZE, typename Parent = void>
class thread_block_tile : public lanes_group {
  static_assert(
      SIZE <= 32, "opsmith's emulator does not run tiles of several warps (thread_block_tile of more than 32 threads)");
  static_assert(SIZE > 0 && (SIZE & (SIZE - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  template <typename Other>
  thread_block_tile(const thread_block_tile<SIZE, Other>& other)
      : lanes_group(details::mask_of_tile(SIZE), other.meta_group_rank(), other.meta_group_size()) {}

  static constexpr unsigned size() { return SIZE; }
  static constexpr unsigned num_threads() { return SIZE; }
  static unsigned thread_rank() { return details::rank_in_block() % SIZE; }

  template <typename Value>
  __forceinline__ Value shfl(Value value, int rank) const {
    return details::from_lane(mask_, value, lane(static_cast<unsigned>(rank) % SIZE));
  }
  template <typename Value>
  __forceinline__ Value shfl_up(Value value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return details::from_lane(mask_, value, lane(delta > rank ? rank : rank - delta));
  }
  template <typename Value>
  __forceinline__ Value shfl_down(Value value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return details::from_lane(mask_, value, lane(delta >= SIZE - rank ? rank : rank + delta));
  }
  template <typename Value>
  __forceinline__ Value shfl_xor(Value value, unsigned lanes) const {
    const unsigned rank = thread_rank();
    return details::from_lane(mask_, value, lane((rank ^ lanes) < SIZE ? rank ^ lanes : rank));
  }

 private:
  thread_block_tile(unsigned meta_group_rank, unsigned meta_group_size)
      : lanes_group(details::mask_of_tile(SIZE), meta_group_rank, meta_group_size) {}
  static int lane(unsigned rank) { return static_cast<int>((opsmith::emulator::lane() & ~(SIZE - 1)) + rank); }

  friend struct details::Parts;
};

// --- Parts of a group ----------------------------------------------------------------------------------------------------

struct details::Parts {
  template <unsigned SIZE, typename Parent>
  static thread_block_tile<SIZE, Parent> tile(const Parent& parent) {
    return {parent.thread_rank() / SIZE, (parent.size() + SIZE - 1) / SIZE};
  }
  static thread_group tile(const thread_group& parent, unsigned size) {
    return thread_group(parent.is_block_ ? mask_of_tile(size) : mask_of_tile(size) & parent.mask_);
  }
  static coalesced_group tile(const coalesced_group& parent, unsigned size) {
    const unsigned part = parent.thread_rank() / size;
    unsigned mask = 0;
    for (unsigned rank = part * size; rank < (part + 1) * size && rank < parent.size(); ++rank) {
      mask |= 1u << lane_of_rank(parent.mask_, rank);
    }
    return {mask, part, (parent.size() + size - 1) / size};
  }
  static coalesced_group lanes(unsigned mask) { return {mask, 0, 1}; }

  __forceinline__ static coalesced_group where(const thread_group& parent, bool predicate) {
    const unsigned lanes = __ballot_sync(parent.mask_, predicate);
    if (lanes == 0 || lanes == parent.mask_) return {parent.mask_, 0, 1};
    return {predicate ? lanes : parent.mask_ & ~lanes, predicate, 2};
  }
  // Parts are counted in the order of their first lanes.
  template <typename Label>
  __forceinline__ static coalesced_group labeled(const thread_group& parent, Label label) {
    const unsigned mask = __match_any_sync(parent.mask_, label), first = mask & -mask;
    const unsigned firsts = __ballot_sync(parent.mask_, first == 1u << opsmith::emulator::lane());
    return {mask, static_cast<unsigned>(__popc(firsts & (first - 1))), static_cast<unsigned>(__popc(firsts))};
  }
};

__forceinline__ coalesced_group coalesced_threads() { return details::Parts::lanes(__activemask()); }

template <unsigned SIZE, typename Parent>
thread_block_tile<SIZE, Parent> tiled_partition(const Parent& parent) {
  return details::Parts::tile<SIZE>(parent);
}

// The size must be 1, 2, 4, 8, 16 or 32.
__forceinline__ thread_group tiled_partition(const thread_group& parent, unsigned size) {
  assert(size > 0 && size <= 32 && (size & (size - 1)) == 0);
  return details::Parts::tile(parent, size);
}
__forceinline__ coalesced_group tiled_partition(const coalesced_group& parent, unsigned size) {
  assert(size > 0 && size <= 32 && (size & (size - 1)) == 0);
  return details::Parts::tile(parent, size);
}

// The threads of the group that say the same.
__forceinline__ coalesced_group binary_partition(const lanes_group& group, bool predicate) {
  return details::Parts::where(group, predicate);
}
template <typename Label>
__forceinline__ coalesced_group labeled_partition(const lanes_group& group, Label label) {
  if constexpr (std::is_same_v<Label, bool>) {
    return details::Parts::where(group, label);
  } else {
    return details::Parts::labeled(group, label);
  }
}

// --- The grid: where one is in it, but no barrier of it --------------------------------------------------------------------

class grid_group {
 public:
  static unsigned long long num_blocks() {
    const dim3 grid = gridDim;
    return static_cast<unsigned long long>(grid.x) * grid.y * grid.z;
  }
  static unsigned long long block_rank() {
    const dim3 grid = gridDim;
    return blockIdx.x + grid.x * (blockIdx.y + static_cast<unsigned long long>(grid.y) * blockIdx.z);
  }
  static unsigned long long size() { return num_blocks() * details::threads_in_block(); }
  static unsigned long long num_threads() { return size(); }
  static unsigned long long thread_rank() { return block_rank() * details::threads_in_block() + details::rank_in_block(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return blockIdx; }
  static dim3 dim_clusters() { return __clusterGridDimInClusters(); }
  static dim3 cluster_index() { return __clusterIdx(); }
  static unsigned long long num_clusters() { return num_blocks() / __clusterSizeInBlocks(); }
  static unsigned long long cluster_rank() {
    const dim3 grid = dim_clusters(), index = cluster_index();
    return index.x + grid.x * (index.y + static_cast<unsigned long long>(grid.y) * index.z);
  }
  static bool is_valid() { return false; }

  template <typename Barrier = void>
  static void sync() {
    static_assert(
        details::never<Barrier>,
        "opsmith's emulator does not run barriers of the whole grid (grid_group::sync): end the kernel and launch another");
  }
};

inline grid_group this_grid() { return {}; }

}  // namespace cooperative_groups

#include "cooperative_groups/opsmith_clusters.h"

namespace cooperative_groups {

// --- As functions ----------------------------------------------------------------------------------------------------------

template <typename Group>
__forceinline__ void sync(const Group& group) {
  group.sync();
}
template <typename Group>
auto thread_rank(const Group& group) {
  return group.thread_rank();
}
template <typename Group>
auto group_size(const Group& group) {
  return group.num_threads();
}

}  // namespace cooperative_groups
