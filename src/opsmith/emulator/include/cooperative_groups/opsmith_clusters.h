// The cluster of blocks as a group.
#pragma once

namespace cooperative_groups {

class cluster_group {
 public:
  struct arrival_token {};

  __forceinline__ static void sync() {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
  }
  __forceinline__ static arrival_token barrier_arrive() {
    __cluster_barrier_arrive();
    return {};
  }
  __forceinline__ static void barrier_wait() { __cluster_barrier_wait(); }
  __forceinline__ static void barrier_wait(arrival_token&&) { __cluster_barrier_wait(); }

  template <typename T>
  __forceinline__ static T* map_shared_rank(T* pointer, int rank) {
    return static_cast<T*>(__cluster_map_shared_rank(pointer, static_cast<unsigned>(rank)));
  }
  __forceinline__ static unsigned query_shared_rank(const void* pointer) { return __cluster_query_shared_rank(pointer); }

  static unsigned block_rank() { return __clusterRelativeBlockRank(); }
  static dim3 block_index() { return __clusterRelativeBlockIdx(); }
  static unsigned num_blocks() { return __clusterSizeInBlocks(); }
  static dim3 dim_blocks() { return __clusterDim(); }
  static unsigned thread_rank() { return block_rank() * details::threads_in_block() + details::rank_in_block(); }
  static dim3 thread_index() {
    const dim3 block = block_index(), size = blockDim;
    const uint3 thread = threadIdx;
    return {block.x * size.x + thread.x, block.y * size.y + thread.y, block.z * size.z + thread.z};
  }
  static unsigned num_threads() { return num_blocks() * details::threads_in_block(); }
  static unsigned size() { return num_threads(); }
  static dim3 dim_threads() {
    const dim3 blocks = dim_blocks(), size = blockDim;
    return {blocks.x * size.x, blocks.y * size.y, blocks.z * size.z};
  }

 private:
  cluster_group() = default;
  friend cluster_group this_cluster();
};

inline cluster_group this_cluster() { return {}; }

}  // namespace cooperative_groups
