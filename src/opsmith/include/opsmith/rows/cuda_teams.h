// The threads that share a row, and how they reduce it: neighbouring lanes of a warp, a block, or a cluster of blocks.
#pragma once

#include <opsmith/cluster.h>
#include <opsmith/pointwise/cuda.h>

namespace opsmith {

// ---- reductions ----------------------------------------------------------------------------------------------------

struct Sum {
  template <class T>
  static OPSMITH_DEVICE T of(T a, T b) {
    return a + b;
  }
};
struct Highest {
  template <class T>
  static OPSMITH_DEVICE T of(T a, T b) {
    if constexpr (same_type<T, bool>) {
      return a || b;
    } else {
      return maximum(a, b);
    }
  }
};
struct Lowest {
  template <class T>
  static OPSMITH_DEVICE T of(T a, T b) {
    if constexpr (same_type<T, bool>) {
      return a && b;
    } else {
      return minimum(a, b);
    }
  }
};

template <class T>
OPSMITH_DEVICE T lowest() {
  if constexpr (is_float<T>) {
    return -infinity<T>();
  } else if constexpr (T(-1) > T(0)) {
    return T(0);
  } else {
    return T(uint64_t(1) << (8 * sizeof(T) - 1));
  }
}
template <class T>
OPSMITH_DEVICE T highest() {
  if constexpr (is_float<T>) {
    return infinity<T>();
  } else {
    return T(~lowest<T>());
  }
}

// A value to reduce over the threads of a team.
template <class Operation, class T>
struct Reduction {
  T& value;
};
template <class Operation, class T>
OPSMITH_DEVICE Reduction<Operation, T> by(T& value) {
  return {value};
}

template <class T>
OPSMITH_DEVICE T of_lane(T value, unsigned int difference) {
  if constexpr (same_type<T, bool>) {
    return __shfl_xor_sync(0xffffffffu, int(value), difference) != 0;
  } else if constexpr (sizeof(T) < 4) {
    return T(__shfl_xor_sync(0xffffffffu, int(value), difference));
  } else {
    return __shfl_xor_sync(0xffffffffu, value, difference);
  }
}

// Over `width` neighbouring lanes, a power of two; each of them has the result.
template <class Operation, class T>
OPSMITH_DEVICE T of_lanes(T value, unsigned int width) {
#pragma unroll
  for (unsigned int step = 16; step > 0; step /= 2) {
    const T other = of_lane(value, step);
    if (step < width) value = Operation::of(value, other);
  }
  return value;
}

// ---- teams ---------------------------------------------------------------------------------------------------------

// Neighbouring lanes of a warp.
template <class Kernel>
class LaneTeam {
  using Index = typename Kernel::Index;

 public:
  OPSMITH_DEVICE explicit LaneTeam(const typename Kernel::Loops& loops)
      : size_(loops.lanes), shift_(31 - __clz(int(loops.lanes))) {}

  OPSMITH_DEVICE unsigned int size() const { return size_; }
  OPSMITH_DEVICE unsigned int rank() const { return threadIdx.x & (size_ - 1); }
  OPSMITH_DEVICE bool leads() const { return rank() == 0; }
  // The teams of a block, and which of them this is.
  OPSMITH_DEVICE unsigned int count() const { return blockDim.x >> shift_; }
  OPSMITH_DEVICE unsigned int number() const { return threadIdx.x >> shift_; }
  OPSMITH_DEVICE unsigned int block() const { return 0; }

  template <class... Parts>
  OPSMITH_DEVICE void reduce(Parts... parts) {
    (within_lanes(parts), ...);
  }
  OPSMITH_DEVICE void arrive() const {}
  OPSMITH_DEVICE void wait() const {}

 private:
  template <class Operation, class T>
  OPSMITH_DEVICE void within_lanes(Reduction<Operation, T> part) const {
    part.value = of_lanes<Operation>(part.value, size_);
  }

  const unsigned int size_, shift_;
};

// The partial results of a team's warps for the K-th reduction of a pass. Consecutive passes alternate between two
// halves: a thread may begin the next pass while another still reads the parts of this one.
template <int K, class T, int Warps>
OPSMITH_DEVICE T* parts_of_warps() {
  __shared__ T parts[2 * Warps];
  return parts;
}

// A block, or a cluster of blocks.
template <class Kernel>
class BlockTeam {
  using Index = typename Kernel::Index;
  static constexpr int blocks = Kernel::cluster;
  static constexpr int most_warps = blocks * Kernel::threads / 32;

 public:
  OPSMITH_DEVICE explicit BlockTeam(const typename Kernel::Loops&)
      : block_(blocks > 1 ? rank_in_cluster() : 0), warps_(blockDim.x / 32) {}

  OPSMITH_DEVICE unsigned int size() const { return blocks * blockDim.x; }
  OPSMITH_DEVICE unsigned int rank() const { return block_ * blockDim.x + threadIdx.x; }
  OPSMITH_DEVICE bool leads() const { return rank() == 0; }
  OPSMITH_DEVICE unsigned int count() const { return 1; }
  OPSMITH_DEVICE unsigned int number() const { return 0; }
  OPSMITH_DEVICE unsigned int block() const { return block_; }

  template <class... Parts>
  OPSMITH_DEVICE void reduce(Parts... parts) {
    put<0>(parts...);
    meet();
    take<0>(parts...);
    half_ ^= 1;
  }
  // Blocks of a cluster write into each other's memory once all of them run: between the two steps, a row is loaded. What
  // the last reduction writes has arrived when its barrier is passed, so blocks may end one by one.
  OPSMITH_DEVICE void arrive() const {
    if (blocks > 1) cluster_arrive();
  }
  OPSMITH_DEVICE void wait() const {
    if (blocks > 1) cluster_wait();
  }

 private:
  OPSMITH_DEVICE void meet() const {
    if constexpr (blocks > 1) {
      cluster_barrier();
    } else {
      __syncthreads();
    }
  }

  template <int K>
  OPSMITH_DEVICE void put() const {}
  template <int K, class Operation, class T, class... Rest>
  OPSMITH_DEVICE void put(Reduction<Operation, T> part, Rest... rest) const {
    const T value = of_lanes<Operation>(part.value, 32);
    T* place = parts_of_warps<K, T, most_warps>() + half_ * most_warps + block_ * warps_ + threadIdx.x / 32;
    if constexpr (blocks > 1) {
      if (threadIdx.x % 32 < blocks) store_in_block(place, threadIdx.x % 32, value);
    } else {
      if (threadIdx.x % 32 == 0) *place = value;
    }
    put<K + 1>(rest...);
  }

  template <int K>
  OPSMITH_DEVICE void take() const {}
  template <int K, class Operation, class T, class... Rest>
  OPSMITH_DEVICE void take(Reduction<Operation, T> part, Rest... rest) const {
    const T* parts = parts_of_warps<K, T, most_warps>() + half_ * most_warps;
    const unsigned int count = blocks * warps_;
    if constexpr (most_warps <= 8) {
      T value = parts[0];
#pragma unroll
      for (unsigned int warp = 1; warp < most_warps; ++warp) {
        if (warp < count) value = Operation::of(value, parts[warp]);
      }
      part.value = value;
    } else {
      const unsigned int lane = threadIdx.x % 32;
      // Lanes without a part repeat the first one. They are not combined, so the order is the same every time.
      T value = parts[lane < count ? lane : 0];
#pragma unroll
      for (unsigned int more = 32; more < most_warps; more += 32) {
        if (lane + more < count) value = Operation::of(value, parts[lane + more]);
      }
#pragma unroll
      for (unsigned int step = most_warps < 32 ? most_warps / 2 : 16; step > 0; step /= 2) {
        const T other = of_lane(value, step);
        // A pair of lanes combines only parts that exist; the upper lane of a pair gets the lower one's result too.
        if ((lane | step) < count) value = Operation::of(value, other);
      }
      part.value = shared_by_first(value);
    }
    take<K + 1>(rest...);
  }

  template <class T>
  OPSMITH_DEVICE static T shared_by_first(T value) {
    if constexpr (same_type<T, bool>) {
      return __shfl_sync(0xffffffffu, int(value), 0) != 0;
    } else if constexpr (sizeof(T) < 4) {
      return T(__shfl_sync(0xffffffffu, int(value), 0));
    } else {
      return __shfl_sync(0xffffffffu, value, 0);
    }
  }

  const unsigned int block_, warps_;
  unsigned int half_ = 0;
};

}  // namespace opsmith
