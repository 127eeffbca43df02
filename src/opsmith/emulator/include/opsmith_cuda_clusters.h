// Clusters of blocks: their barrier, and access to the shared memory of other blocks.
#pragma once

#include "opsmith_cuda_threads.h"

namespace opsmith::emulator {

// The index of a block in its cluster.
inline dim3 index_in_cluster() {
  const Dim block = opsmith_block_index(), size = opsmith_cluster_size();
  return {block.x % size.x, block.y % size.y, block.z % size.z};
}
inline unsigned rank_in_cluster() {
  const Dim size = opsmith_cluster_size();
  const dim3 index = index_in_cluster();
  return index.x + size.x * (index.y + size.y * index.z);
}
inline unsigned blocks_of_cluster() {
  const Dim size = opsmith_cluster_size();
  return size.x * size.y * size.z;
}
// The index of the cluster in the grid, and the size of the grid, in clusters.
inline dim3 index_of_cluster() {
  const Dim block = opsmith_block_index(), size = opsmith_cluster_size();
  return {block.x / size.x, block.y / size.y, block.z / size.z};
}
inline dim3 grid_in_clusters() {
  const Dim grid = opsmith_grid_size(), size = opsmith_cluster_size();
  return {grid.x / size.x, grid.y / size.y, grid.z / size.z};
}

}  // namespace opsmith::emulator

inline dim3 __clusterDim() { return opsmith::emulator::as_dim3(opsmith::emulator::opsmith_cluster_size()); }
inline dim3 __clusterRelativeBlockIdx() { return opsmith::emulator::index_in_cluster(); }
inline dim3 __clusterGridDimInClusters() { return opsmith::emulator::grid_in_clusters(); }
inline dim3 __clusterIdx() { return opsmith::emulator::index_of_cluster(); }
inline unsigned __clusterRelativeBlockRank() { return opsmith::emulator::rank_in_cluster(); }
inline unsigned __clusterSizeInBlocks() { return opsmith::emulator::blocks_of_cluster(); }

__forceinline__ void __cluster_barrier_arrive() { opsmith::emulator::opsmith_cluster_arrive(1); }
__forceinline__ void __cluster_barrier_arrive_relaxed() { opsmith::emulator::opsmith_cluster_arrive(0); }
__forceinline__ void __cluster_barrier_wait() { opsmith::emulator::opsmith_cluster_wait(); }
// Treated as a fence for the whole device: no flag is visible to a cluster only.
__forceinline__ void __threadfence_cluster() { opsmith::emulator::opsmith_fence(1); }

__forceinline__ void* __cluster_map_shared_rank(const void* pointer, unsigned rank) {
  return opsmith::emulator::opsmith_map_shared(pointer, rank);
}
__forceinline__ unsigned __cluster_query_shared_rank(const void* pointer) {
  return opsmith::emulator::opsmith_shared_rank(pointer);
}
inline unsigned __isCtaShared(const void* pointer) {
  return opsmith::emulator::opsmith_shared_rank(pointer) == opsmith::emulator::rank_in_cluster();
}
inline unsigned __isClusterShared(const void* pointer) { return opsmith::emulator::opsmith_shared_rank(pointer) != ~0u; }
