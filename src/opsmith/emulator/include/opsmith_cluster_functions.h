// The functions of opsmith/cluster.h for the emulator.
#pragma once

#include "opsmith_cuda_clusters.h"

namespace opsmith {

inline unsigned rank_in_cluster() { return emulator::rank_in_cluster(); }
inline unsigned block_count_of_cluster() { return emulator::blocks_of_cluster(); }

__forceinline__ void cluster_arrive() { emulator::opsmith_cluster_arrive(1); }
__forceinline__ void cluster_wait() { emulator::opsmith_cluster_wait(); }
__forceinline__ void cluster_barrier() {
  emulator::opsmith_cluster_arrive(1);
  emulator::opsmith_cluster_wait();
}

template <class T>
__forceinline__ void store_in_block(T* pointer, unsigned rank, T value) {
  *static_cast<T*>(emulator::opsmith_map_shared(pointer, rank)) = value;
}
template <class T>
__forceinline__ T load_from_block(const T* pointer, unsigned rank) {
  return *static_cast<const T*>(emulator::opsmith_map_shared(pointer, rank));
}

}  // namespace opsmith
