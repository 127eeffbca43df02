// Drivers of row kernels on the GPU: which threads share a row, where its elements are held, how it is reduced.
//
// A team of threads has one row at a time: neighbouring lanes of a warp, a block, or the blocks of a cluster, which
// read each other's shared memory. A row that fits is read once: each thread of the team holds `held` packs of it in
// registers, and every pass goes through them. A longer row is read again by every pass.
//
// A kernel K is a struct with
//   vector, held, threads, cluster   elements of a pack; packs per thread, 0 if rows do not fit; the most threads of a
//                                    block; blocks of a cluster, 0 if a team is part of a warp
//   ahead                            whether a team loads its next row while it computes one
//   start, locate, load              where a row and its elements are, and what is loaded of them
//   compute                          the passes over a row, as calls of `elements.each` and `team.reduce`
//   Sums, finish                     the sums over rows that a team has
// Reductions and sums are made in an order that depends on sizes alone.
#pragma once

#include <opsmith/cluster.h>
#include <opsmith/pointwise/cuda.h>

namespace opsmith {

// An index that is out of range ends the kernel with an error, as torch's own kernels do.
#ifdef __CUDA_ARCH__
extern "C" __device__ void __assertfail(
    const char* message, const char* file, unsigned int line, const char* function, decltype(sizeof(0)) width);
OPSMITH_DEVICE void refuse_index() { __assertfail("index out of range", __FILE__, __LINE__, "opsmith", 1); }
#else
OPSMITH_DEVICE void refuse_index() { __builtin_trap(); }
#endif

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
  OPSMITH_DEVICE void begin() const {}
  OPSMITH_DEVICE void end() const {}

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
  // Blocks of a cluster write into each other's memory only while all of them run.
  OPSMITH_DEVICE void begin() const {
    if (blocks > 1) cluster_barrier();
  }
  OPSMITH_DEVICE void end() const {
    if (blocks > 1) cluster_barrier();
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
    const unsigned int count = blocks * warps_, lane = threadIdx.x % 32;
    // Lanes without a part repeat the first one. They are not combined, so the order is the same every time.
    T value = parts[lane < count ? lane : 0];
#pragma unroll
    for (unsigned int more = 32; more < most_warps; more += 32) {
      if (lane + more < count) value = Operation::of(value, parts[lane + more]);
    }
#pragma unroll
    for (unsigned int step = 16; step > 0; step /= 2) {
      const T other = of_lane(value, step);
      // A pair of lanes combines only parts that exist; the upper lane of a pair gets the lower one's result too.
      if ((lane | step) < count) value = Operation::of(value, other);
    }
    part.value = shared_by_first(value);
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

// ---- the elements of a row -----------------------------------------------------------------------------------------

template <class I, int Kept, int Along>
struct RowLoops {
  I length;
  I rows;
  I lanes;          // of a team that is part of a warp
  I direct;         // whether sums over rows are results, not partial sums
  I rows_of_group;  // rows that are summed together
  I segment;        // elements that are summed together
  Sizes<Kept, I> kept_sizes;
  Sizes<Along, I> reduced_sizes;

  template <int Count>
  OPSMITH_DEVICE RowLoops(const Parameters<Count>& parameters, int place)
      : length(I(parameters.value[place])),
        rows(I(parameters.value[place + 1])),
        lanes(I(parameters.value[place + 2])),
        direct(I(parameters.value[place + 3])),
        rows_of_group(I(parameters.value[place + 4])),
        segment(I(parameters.value[place + 5])),
        kept_sizes(parameters, place + 6),
        reduced_sizes(parameters, place + 6 + Kept) {}
};

// The rows of the teams of a block, or of the team of a cluster: of all rows, or, with sums over rows, of one group.
template <class Kernel>
struct Share {
  using Index = typename Kernel::Index;
  static constexpr int blocks = Kernel::cluster > 1 ? Kernel::cluster : 1;

  Index index, part, parts;
  Index group = 0, groups = 1;
  Index origin = 0, rows;  // of the group: its first, and how many

  OPSMITH_DEVICE explicit Share(const typename Kernel::Loops& loops)
      : index(blockIdx.x / blocks), part(index), parts(gridDim.x / blocks), rows(loops.rows) {
    if constexpr (Kernel::has_sums) {
      rows = loops.rows_of_group;
      groups = loops.rows / rows;
      part = index / groups;
      group = index % groups;
      parts /= groups;
      origin = group * rows;
    }
  }
};

// What a pass writes element by element: nothing, by default.
struct Nothing {};

// The packs of a row that a thread holds.
template <class Kernel>
class HeldElements {
  using Index = typename Kernel::Index;
  using Place = typename Kernel::Place;
  static constexpr int V = Kernel::vector;
  static constexpr int U = Kernel::held;

 public:
  OPSMITH_DEVICE HeldElements(const Kernel& kernel, const Place& start, Index rank, Index size, bool mine)
      : kernel_(kernel), first_(rank), size_(size) {
    load(start, mine);
  }

  // Another row's elements. The loads are issued here and waited for where a pass uses them.
  OPSMITH_DEVICE void load(const Place& start, bool mine) {
    start_ = start;
    mine_ = mine;
    const Index packs = kernel_.loops.length / V;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const Index pack = first_ + u * size_;
      inputs_[u] = kernel_.template load<V>(place(pack < packs ? pack : 0));
    }
  }

  OPSMITH_DEVICE void take(const HeldElements& other) {
    start_ = other.start_;
    mine_ = other.mine_;
#pragma unroll
    for (int u = 0; u < U; ++u) inputs_[u] = other.inputs_[u];
  }

  // pass(inputs, shared, outputs, lane, column, slot) for each element; then store(outputs, place) for each pack.
  template <class Outputs, class Pass, class Store>
  OPSMITH_DEVICE void each(const Pass& pass, const Store& store) const {
    const Index packs = kernel_.loops.length / V;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const Index pack = first_ + u * size_;
      if (pack >= packs) continue;
      const auto shared = kernel_.template load_shared<V>(pack * V);
      Outputs outputs;
#pragma unroll
      for (int lane = 0; lane < V; ++lane) {
        pass(inputs_[u], shared, outputs, lane, int64_t(pack) * V + lane, u * V + lane);
      }
      if constexpr (!same_type<Outputs, Nothing>) {
        if (mine_) store(outputs, place(pack));
      }
    }
  }

 private:
  OPSMITH_DEVICE Place place(Index pack) const { return kernel_.locate(start_, pack * V); }

  const Kernel& kernel_;
  const Index first_, size_;
  Place start_;
  bool mine_;
  typename Kernel::template Inputs<V> inputs_[U > 0 ? U : 1];
};

// The packs of a row that is too long to be held: loaded again by every pass, a few at a time.
template <class Kernel>
class StreamedElements {
  using Index = typename Kernel::Index;
  using Place = typename Kernel::Place;
  static constexpr int V = Kernel::vector;
  static constexpr int U = 2;

 public:
  OPSMITH_DEVICE StreamedElements(const Kernel& kernel, const Place& start, Index rank, Index size, bool mine)
      : kernel_(kernel), start_(start), first_(rank), size_(size), mine_(mine) {}

  template <class Outputs, class Pass, class Store>
  OPSMITH_DEVICE void each(const Pass& pass, const Store& store) const {
    const Index packs = kernel_.loops.length / V;
    for (Index from = first_; from < packs; from += U * size_) {
      typename Kernel::template Inputs<V> inputs[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const Index pack = from + u * size_;
        inputs[u] = kernel_.template load<V>(place(pack < packs ? pack : from));
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const Index pack = from + u * size_;
        if (pack >= packs) continue;
        const auto shared = kernel_.template load_shared<V>(pack * V);
        Outputs outputs;
#pragma unroll
        for (int lane = 0; lane < V; ++lane) pass(inputs[u], shared, outputs, lane, int64_t(pack) * V + lane, 0);
        if constexpr (!same_type<Outputs, Nothing>) {
          if (mine_) store(outputs, place(pack));
        }
      }
    }
  }

 private:
  OPSMITH_DEVICE Place place(Index pack) const { return kernel_.locate(start_, pack * V); }

  const Kernel& kernel_;
  const Place start_;
  const Index first_, size_;
  const bool mine_;
};

template <bool First, class A, class B>
struct Either {
  using type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using type = B;
};

// ---- sums over rows ------------------------------------------------------------------------------------------------

// A column's sum for each of a thread's elements: in registers, or, where rows are not held, in the partial sums in
// memory, each of which only one thread reads and writes.
template <class A, int Slots, class Partial>
struct ColumnSums {
  A value[Slots];

  OPSMITH_DEVICE ColumnSums(const Partial&, int64_t) {
#pragma unroll
    for (int slot = 0; slot < Slots; ++slot) value[slot] = A(0);
  }
  OPSMITH_DEVICE void add(int slot, int64_t, A term) { value[slot] += term; }
  OPSMITH_DEVICE void next_row() {}
};
template <class A, class Partial>
struct ColumnSums<A, 0, Partial> {
  Partial partial;
  int64_t row;  // where a team's sums begin
  bool first = true;

  OPSMITH_DEVICE ColumnSums(const Partial& partial, int64_t row) : partial(partial), row(row) {}
  OPSMITH_DEVICE void add(int, int64_t column, A term) {
    if (first) {
      put(partial, row + column, term);
    } else {  // several rows have several teams, so these are accumulators and not the result
      memory_of(partial)[row + column] += term;
    }
  }
  OPSMITH_DEVICE void next_row() { first = false; }

 private:
  template <class T>
  static OPSMITH_DEVICE A* memory_of(const PartialSums<T, A>& partial) {
    return static_cast<A*>(partial.memory);
  }
  static OPSMITH_DEVICE A* memory_of(A* partial) { return partial; }
};

// Of the packs of a row, those that the threads of a block hold in a slot: from `first` on, one for each thread of a team.
template <class Kernel, class Team>
struct Slot {
  using Index = typename Kernel::Index;
  Index first, count;

  OPSMITH_DEVICE Slot(const Kernel& kernel, const Team& team, int slot) {
    const unsigned int threads = blockDim.x / team.count();
    const Index packs = kernel.loops.length / Kernel::vector;
    first = Index(slot) * team.size() + team.block() * threads;
    count = first < packs ? lesser<Index>(packs - first, threads) : 0;
  }
};

// Writes the sums of columns. Threads of a team have different columns; teams that share a block have the same ones,
// which are added up first.
template <class Kernel, class Team, class A, int Slots, class Partial>
OPSMITH_DEVICE void put_columns(
    const Kernel& kernel, const Team& team, const Share<Kernel>& share, const ColumnSums<A, Slots, Partial>& sums,
    const Partial& partial) {
  using Index = typename Kernel::Index;
  constexpr int V = Kernel::vector;
  const Index row = share.index * kernel.loops.length;
  if constexpr (Slots > 0 && Kernel::cluster > 0) {
#pragma unroll
    for (int u = 0; u < Kernel::held; ++u) {
      const Index pack = team.rank() + Index(u) * team.size();
      if (pack >= kernel.loops.length / V) continue;
#pragma unroll
      for (int lane = 0; lane < V; ++lane) put(partial, row + pack * V + lane, sums.value[u * V + lane]);
    }
  } else if constexpr (Slots > 0) {
    A* by_thread = sums_of_threads<Kernel::threads, V, A>();
    for (int u = 0; u < Kernel::held; ++u) {
      const Slot<Kernel, Team> slot(kernel, team, u);
      __syncthreads();  // the previous sums are still being read
#pragma unroll
      for (int lane = 0; lane < V; ++lane) {
        A value = A(0);
#pragma unroll
        for (int of = 0; of < Kernel::held; ++of) value = of == u ? sums.value[of * V + lane] : value;
        by_thread[lane * (Kernel::threads + 1) + threadIdx.x] = value;
      }
      __syncthreads();
      for (unsigned int at = threadIdx.x; at < slot.count * V; at += blockDim.x) {
        A sum = A(0);
        for (unsigned int thread = at / V; thread < blockDim.x; thread += team.size()) {
          sum += by_thread[at % V * (Kernel::threads + 1) + thread];
        }
        put(partial, row + slot.first * V + at, sum);
      }
    }
  }
}

// Sums for segments: one for each pack of a thread.
template <class A, int Slots, int V>
struct SegmentSums {
  A value[Slots > 0 ? Slots : 1];

  OPSMITH_DEVICE SegmentSums() {
#pragma unroll
    for (int slot = 0; slot < Slots; ++slot) value[slot] = A(0);
  }
  OPSMITH_DEVICE void add(int slot, int64_t, A term) { value[slot / V] += term; }
};

// Writes a block's part of the sums of segments. A warp computes one segment at a time.
template <class Kernel, class Team, class A, int Slots, int V>
OPSMITH_DEVICE void put_segments(
    const Kernel& kernel, const Team& team, const Share<Kernel>& share, const SegmentSums<A, Slots, V>& sums,
    A* partial) {
  using Index = typename Kernel::Index;
  const Index packs = kernel.loops.segment / V, count = kernel.loops.length / kernel.loops.segment;
  const unsigned int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  A* row = partial + ((share.part * share.blocks + team.block()) * share.groups + share.group) * count;
  A* by_thread = sums_of_threads<Kernel::threads, 1, A>();
  for (Index s = threadIdx.x; s < count; s += blockDim.x) row[s] = A(0);
  for (int u = 0; u < Slots; ++u) {
    const Slot<Kernel, Team> slot(kernel, team, u);
    __syncthreads();  // the previous sums are still being read, and their results written
    A value = A(0);
#pragma unroll
    for (int of = 0; of < Slots; ++of) value = of == u ? sums.value[of] : value;
    by_thread[threadIdx.x] = value;
    __syncthreads();
    if (slot.count == 0) continue;
    const Index last = (slot.first + slot.count - 1) / packs;
    for (Index s = slot.first / packs + warp; s <= last; s += blockDim.x / 32) {
      const Index begin = s * packs > slot.first ? s * packs - slot.first : 0;
      const unsigned int end = lesser<Index>((s + 1) * packs - slot.first, slot.count);
      A sum = A(0);
      for (unsigned int pack = begin + lane; pack < end; pack += 32) {
        for (unsigned int thread = pack; thread < blockDim.x; thread += blockDim.x / team.count()) sum += by_thread[thread];
      }
      sum = of_lanes<Sum>(sum, 32);
      if (lane == 0) row[s] += sum;
    }
  }
}

// Writes the total of a block's teams; in a cluster, only its first block has one.
template <int K, class Kernel, class Team, class A, class Partial>
OPSMITH_DEVICE void put_total(const Team& team, const Share<Kernel>& share, A total, const Partial& partial) {
  __shared__ A by_warp[Kernel::threads / 32];
  total = of_lanes<Sum>(total, 32);
  if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x != 0 || team.block() != 0) return;
  for (unsigned int warp = 1; warp < blockDim.x / 32; ++warp) total += by_warp[warp];
  put(partial, share.index, total);
}

// ---- the driver ----------------------------------------------------------------------------------------------------

template <class Kernel>
OPSMITH_DEVICE void rows(const Kernel& kernel) {
  using Index = typename Kernel::Index;
  using Team = typename Either<Kernel::cluster == 0, LaneTeam<Kernel>, BlockTeam<Kernel>>::type;
  using Elements = typename Either<(Kernel::held > 0), HeldElements<Kernel>, StreamedElements<Kernel>>::type;
  await_launch_before();
  const auto& loops = kernel.loops;
  if (Kernel::has_sums && !loops.direct) admit_launch_after();  // which combines them
  Team team(loops);
  team.begin();
  const Share<Kernel> share(loops);
  typename Kernel::Sums sums(kernel, share);
  // All threads of a block run the same iterations. A team without a row computes the last row and stores nothing.
  const Index step = share.parts * team.count();
  Index first = share.part * team.count();
  const auto is_row = [&](Index first) { return first + team.number() < share.rows; };
  const auto start = [&](Index first) {
    return kernel.start(share.origin + lesser<Index>(first + team.number(), share.rows - 1));
  };
  if constexpr (Kernel::ahead) {
    // The next row is loaded while this one is computed.
    if (first < share.rows) {
      Elements elements(kernel, start(first), team.rank(), team.size(), is_row(first));
      for (; first < share.rows; first += step) {
        const Index next = first + step < share.rows ? first + step : first;
        const Elements following(kernel, start(next), team.rank(), team.size(), is_row(next));
        kernel.compute(team, elements, start(first), is_row(first), sums);
        sums.next_row();
        elements.take(following);
      }
    }
  } else {
    for (; first < share.rows; first += step) {
      const Elements elements(kernel, start(first), team.rank(), team.size(), is_row(first));
      kernel.compute(team, elements, start(first), is_row(first), sums);
      sums.next_row();
    }
  }
  kernel.finish(team, share, sums);
  team.end();
}

}  // namespace opsmith
