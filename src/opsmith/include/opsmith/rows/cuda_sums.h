// Sums over rows: of columns, of segments of columns, of everything. A team adds up its own rows, then its block writes
// partial sums, which a second kernel combines.
#pragma once

#include <opsmith/rows/cuda_teams.h>

namespace opsmith {

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

}  // namespace opsmith
