// Clusters of blocks (sm_90 and later): which block this is, their barrier, and the shared memory of the others.
//
//   rank_in_cluster(), block_count_of_cluster()   0 and 1 in a launch without clusters
//   cluster_barrier()                             all threads of the cluster; orders their accesses to all memory
//   cluster_arrive(), cluster_wait()              its two steps. All threads of a warp take each together
//   store_in_block(pointer, rank, value)          writes what the block of that rank has where this one has `pointer`,
//   load_from_block(pointer, rank)                in shared memory, and reads it; types of 1, 2, 4, 8 and 16 bytes
//
// Another block's memory is there from the first cluster_barrier on, until that block ends: call cluster_barrier before
// the first access and after the last one. On older GPUs a block is a cluster by itself. Needs no other header.
#pragma once

#if defined(OPSMITH_EMULATOR)
#include <opsmith_cluster_functions.h>
#else

namespace opsmith {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ unsigned block_count_of_cluster() {
  unsigned count;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return count;
}

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}

namespace detail {

__device__ __forceinline__ unsigned address_in_block(const void* pointer, unsigned rank) {
  const unsigned own = static_cast<unsigned>(__cvta_generic_to_shared(pointer));
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
  return there;
}

// A value as a register, or four: the compiler makes the copies no instructions.
template <class Register, class T>
__device__ __forceinline__ Register bits(const T& value) {
  static_assert(sizeof(Register) == sizeof(T), "a register of the value's size");
  Register found;
  memcpy(&found, &value, sizeof(T));
  return found;
}

}  // namespace detail

template <class T>
__device__ __forceinline__ void store_in_block(T* pointer, unsigned rank, T value) {
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                "store_in_block takes types of 1, 2, 4, 8 and 16 bytes");
  const unsigned there = detail::address_in_block(pointer, rank);
  if constexpr (sizeof(T) == 16) {
    const uint4 words = detail::bits<uint4>(value);
    asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(there), "r"(words.x), "r"(words.y),
                 "r"(words.z), "r"(words.w)
                 : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("st.shared::cluster.b64 [%0], %1;" ::"r"(there), "l"(detail::bits<unsigned long long>(value)) : "memory");
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(there), "r"(detail::bits<unsigned>(value)) : "memory");
  } else if constexpr (sizeof(T) == 2) {
    asm volatile("st.shared::cluster.b16 [%0], %1;" ::"r"(there), "h"(detail::bits<unsigned short>(value)) : "memory");
  } else {
    asm volatile("st.shared::cluster.b8 [%0], %1;" ::"r"(there), "r"(unsigned{detail::bits<unsigned char>(value)})
                 : "memory");
  }
}

template <class T>
__device__ __forceinline__ T load_from_block(const T* pointer, unsigned rank) {
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16,
                "load_from_block takes types of 1, 2, 4, 8 and 16 bytes");
  const unsigned there = detail::address_in_block(pointer, rank);
  if constexpr (sizeof(T) == 16) {
    uint4 words;
    asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(there)
                 : "memory");
    return detail::bits<T>(words);
  } else if constexpr (sizeof(T) == 8) {
    unsigned long long word;
    asm volatile("ld.shared::cluster.b64 %0, [%1];" : "=l"(word) : "r"(there) : "memory");
    return detail::bits<T>(word);
  } else if constexpr (sizeof(T) == 4) {
    unsigned word;
    asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(word) : "r"(there) : "memory");
    return detail::bits<T>(word);
  } else if constexpr (sizeof(T) == 2) {
    unsigned short word;
    asm volatile("ld.shared::cluster.b16 %0, [%1];" : "=h"(word) : "r"(there) : "memory");
    return detail::bits<T>(word);
  } else {
    unsigned word;
    asm volatile("ld.shared::cluster.b8 %0, [%1];" : "=r"(word) : "r"(there) : "memory");
    return detail::bits<T>(static_cast<unsigned char>(word));
  }
}

#else  // a GPU without clusters, or the host's pass

__device__ __forceinline__ unsigned rank_in_cluster() { return 0; }
__device__ __forceinline__ unsigned block_count_of_cluster() { return 1; }
__device__ __forceinline__ void cluster_arrive() {}
__device__ __forceinline__ void cluster_wait() { __syncthreads(); }
__device__ __forceinline__ void cluster_barrier() { __syncthreads(); }

template <class T>
__device__ __forceinline__ void store_in_block(T* pointer, unsigned, T value) {
  *pointer = value;
}
template <class T>
__device__ __forceinline__ T load_from_block(const T* pointer, unsigned) {
  return *pointer;
}

#endif

}  // namespace opsmith

#endif
