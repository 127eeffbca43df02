// The drivers of pointwise kernels on the GPU: who computes which elements, and how sums are made.
//
// A kernel is a struct that opsmith generates for one operator and one layout: it locates, loads, computes and stores.
// A driver here passes it V elements at a time (a pack: 16 bytes of the narrowest tensor) and U packs per iteration, so
// that U loads of each tensor are in flight before the first is used. Loads past the end repeat an earlier pack instead
// of branching; their results are neither stored nor summed. Tensors of one element are read once, after the loads of
// the first packs have been issued, so that nothing waits for them alone.
//
// Sums are deterministic: threads, then warps, then blocks add in an order that depends on sizes alone.
#pragma once

#include <opsmith/pointwise/cuda_activations.h>
#include <opsmith/pointwise/cuda_math.h>
#include <opsmith/pointwise/cuda_memory.h>
#include <opsmith/pointwise/cuda_types.h>

namespace opsmith {

template <class Index>
OPSMITH_DEVICE Index lesser(Index a, Index b) {
  return a < b ? a : b;
}

template <class Index>
OPSMITH_DEVICE Index divide_up(Index a, Index b) {
  return (a + b - 1) / b;
}

// --- launches before and after --------------------------------------------------------------------------------------

// A launch may begin while the one before it ends, which takes 0.15 us off it (driver.py's OVERLAPPED). Every driver
// waits here, before it accesses memory, until that one has ended and its writes are visible.
OPSMITH_DEVICE void await_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next launch begin, and wait, as soon as all blocks of this one have begun: 0.5 us. Only where that is a
// launch of the same operator: another operator's may read data early that it takes for constant. (And 2^22 floats,
// four times as many blocks as fit, took 7 % longer.)
OPSMITH_DEVICE void admit_launch_after() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// --- elements -------------------------------------------------------------------------------------------------------

template <int V, class Kernel>
OPSMITH_DEVICE typename Kernel::template Outputs<V> computed(
    const Kernel& kernel, const typename Kernel::Scalars& scalars, const typename Kernel::template Inputs<V>& inputs) {
  typename Kernel::template Outputs<V> outputs;
#pragma unroll
  for (int lane = 0; lane < V; ++lane) kernel.compute(scalars, inputs, outputs, lane);
  return outputs;
}

// V elements from an index on.
template <int V, class Kernel, class Index>
OPSMITH_DEVICE void compute_at(const Kernel& kernel, Index index) {
  const auto place = kernel.locate(index);
  const auto inputs = kernel.template load<V>(place);
  kernel.template store<V>(computed<V>(kernel, kernel.scalars(), inputs), place);
}

// --- stream: every element once -----------------------------------------------------------------------------------

template <class I, int Inner>
struct StreamLoops {
  I count;
  Sizes<Inner, I> sizes;

  template <int Count>
  OPSMITH_DEVICE StreamLoops(const Parameters<Count>& parameters, int place)
      : count(I(parameters.value[place])), sizes(parameters, place + 1) {}
};

// One block computes threads * U packs, neighbouring threads neighbouring packs. The last elements, fewer than V, go to
// the first threads of the first block. A small launch has a thread for each pack, or for each pair of elements, and
// then each thread computes one.
template <class Kernel>
OPSMITH_DEVICE void stream(const Kernel& kernel) {
  using Index = typename Kernel::Index;
  constexpr int V = Kernel::vector;
  constexpr int U = Kernel::unroll;
  await_launch_before();
  const Index count = kernel.loops.count;
  const Index threads = Index(gridDim.x) * Kernel::threads;
  const Index thread = Index(blockIdx.x) * Kernel::threads + threadIdx.x;
  if constexpr (V > 2) {
    if (2 * threads >= count) {  // first and separate: a small launch mostly waits for its instructions
      if (thread < count / 2) {
        compute_at<2>(kernel, 2 * thread);
      } else if (2 * thread < count) {
        compute_at<1>(kernel, 2 * thread);
      }
      return;
    }
  }
  const Index packs = count / V;
  const bool one_pack = U > 1 && threads >= packs;
  const Index first = one_pack ? thread : Index(blockIdx.x) * (Kernel::threads * U) + threadIdx.x;
  if (first < packs) {
    typename Kernel::Place places[U];
    typename Kernel::template Inputs<V> inputs[U];
    const auto is_mine = [&](int u) { return u == 0 || (!one_pack && first + u * Kernel::threads < packs); };
#pragma unroll
    for (int u = 0; u < U; ++u) {
      // Past the end, the thread's own first pack: in place, another thread's may be written already.
      places[u] = kernel.locate((is_mine(u) ? first + u * Kernel::threads : first) * V);
      inputs[u] = kernel.template load<V>(places[u]);
    }
    const auto scalars = kernel.scalars();
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const auto outputs = computed<V>(kernel, scalars, inputs[u]);
      if (is_mine(u)) kernel.template store<V>(outputs, places[u]);
    }
  }
  if constexpr (V > 1) {
    const Index index = packs * V + threadIdx.x;
    if (blockIdx.x == 0 && index < count) compute_at<1>(kernel, index);
  }
}

// --- sums within a block --------------------------------------------------------------------------------------------

// Of V values, pairwise.
template <class A, int V, class T>
OPSMITH_DEVICE A pairwise(const T (&values)[V]) {
  A sums[V];
#pragma unroll
  for (int lane = 0; lane < V; ++lane) sums[lane] = cast<A>(values[lane]);
#pragma unroll
  for (int step = V / 2; step > 0; step /= 2) {
#pragma unroll
    for (int lane = 0; lane < step; ++lane) sums[lane] += sums[lane + step];
  }
  return sums[0];
}

// Over `width` neighbouring lanes of a warp, a power of two; each of them holds the sum. (A loop that ends with `width`
// makes a small launch 0.08 us slower.)
template <class A>
OPSMITH_DEVICE A warp_sum(A value, unsigned int width) {
#pragma unroll
  for (unsigned int step = 16; step > 0; step /= 2) {
    const A other = __shfl_xor_sync(0xffffffffu, value, step);
    if (step < width) value += other;
  }
  return value;
}

// The sums of a block's warps, for the K-th of its results.
template <int K, int Threads, class A>
OPSMITH_DEVICE A* sums_of_warps() {
  __shared__ A by_warp[Threads / 32];
  return by_warp;
}

template <int K, int Threads, class A>
OPSMITH_DEVICE void gather_warp(A value) {
  value = warp_sum(value, 32);
  if (threadIdx.x % 32 == 0) sums_of_warps<K, Threads, A>()[threadIdx.x / 32] = value;
}

// The warp that adds up the K-th: several do so side by side.
template <int K, int Threads>
OPSMITH_DEVICE bool adds_up() {
  return threadIdx.x == K % (Threads / 32) * 32;
}

template <int K, int Threads, class A>
OPSMITH_DEVICE A gathered() {
  const A* by_warp = sums_of_warps<K, Threads, A>();
  A sum = by_warp[0];
#pragma unroll
  for (int warp = 1; warp < Threads / 32; ++warp) sum += by_warp[warp];
  return sum;
}

// Where the sums of a result go: accumulators, to be combined; or, where each element of the result has one sum, the
// result itself, which may be of a half type.
template <class T, class A>
struct PartialSums {
  void* memory;
  bool whole;
};

template <class T, class A, class Index>
OPSMITH_DEVICE void put(const PartialSums<T, A>& partial, Index index, A sum) {
  if (partial.whole) {
    static_cast<T*>(partial.memory)[index] = narrow<T>(sum);
  } else {
    static_cast<A*>(partial.memory)[index] = sum;
  }
}

template <class A, class Index>
OPSMITH_DEVICE void put(A* partial, Index index, A sum) {
  partial[index] = sum;
}

// --- a thread's own terms -------------------------------------------------------------------------------------------

// Packs first, first + stride, ... below `end`: computed, stored, summed, U of them in flight at once. All threads of a
// launch go through memory side by side: where each had a contiguous range, 2^28 floats were more pages at a time than
// the GPU translates at once, and took a fifth longer. (Prefetching the next iteration made no sum faster, and some 2 %
// slower.)
template <int U, class Kernel, class Sums, class Index, class Locate>
OPSMITH_DEVICE void sum_along(
    const Kernel& kernel, Sums& sums, Index first, Index end, Index stride, const Locate& locate) {
  constexpr int V = Kernel::vector;
  typename Kernel::Place places[U];
  typename Kernel::template Inputs<V> inputs[U];
  const auto load = [&] {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      places[u] = locate(first + u * stride < end ? first + u * stride : first);
      inputs[u] = kernel.template load<V>(places[u]);
    }
  };
  if (first >= end) return;
  load();
  const auto scalars = kernel.scalars();
  while (true) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (first + u * stride < end) {
        const auto outputs = computed<V>(kernel, scalars, inputs[u]);
        kernel.template store<V>(outputs, places[u]);
        kernel.template add<V>(sums, outputs);
      }
    }
    first += U * stride;
    if (first >= end) return;
    load();
  }
}

// V elements, computed, stored and summed.
template <int V, class Kernel, class Sums>
OPSMITH_DEVICE void sum_at(const Kernel& kernel, Sums& sums, const typename Kernel::Place& place) {
  const auto inputs = kernel.template load<V>(place);
  const auto outputs = computed<V>(kernel, kernel.scalars(), inputs);
  kernel.template store<V>(outputs, place);
  kernel.template add<V>(sums, outputs);
}

// Few blocks cannot hide each other's memory latency: their threads have more packs in flight, if there are more.
template <class Kernel, class Sums, class Index, class Locate>
OPSMITH_DEVICE void sum_terms(
    const Kernel& kernel, Sums& sums, Index first, Index end, Index stride, const Locate& locate) {
  if (Kernel::in_flight > Kernel::unroll && end > Kernel::unroll * stride && gridDim.x <= Kernel::few_blocks) {
    sum_along<Kernel::in_flight>(kernel, sums, first, end, stride, locate);
  } else {
    sum_along<Kernel::unroll>(kernel, sums, first, end, stride, locate);
  }
}

// --- segment: sums along the innermost dimension --------------------------------------------------------------------

template <class I, int Kept, int Reduced>
struct SegmentLoops {
  I length;
  I kept_count;
  I chunks;
  I group;  // threads that share a chunk, a power of two: part of a warp, or a block
  Sizes<Kept, I> kept_sizes;
  Sizes<Reduced, I> reduced_sizes;

  template <int Count>
  OPSMITH_DEVICE SegmentLoops(const Parameters<Count>& parameters, int place)
      : length(I(parameters.value[place])),
        kept_count(I(parameters.value[place + 1])),
        chunks(I(parameters.value[place + 2])),
        group(I(parameters.value[place + 3])),
        kept_sizes(parameters, place + 4),
        reduced_sizes(parameters, place + 4 + Kept) {}
};

template <int Threads, class Index>
struct SegmentSum {
  int group;
  Index item;
  Index items;

  template <int K, class A>
  OPSMITH_DEVICE void gather(A value) const {
    if (group > 32) gather_warp<K, Threads>(value);
  }

  OPSMITH_DEVICE void meet() const {
    if (group > 32) __syncthreads();
  }

  template <int K, class A, class Partial>
  OPSMITH_DEVICE void scatter(A value, const Partial& partial) const {
    if (group > 32) {
      if (adds_up<K, Threads>()) put(partial, item, gathered<K, Threads, A>());
    } else {
      value = warp_sum(value, group);
      if ((threadIdx.x & (group - 1)) == 0 && item < items) put(partial, item, value);
    }
  }
};

// An item is a chunk of one kept combination: item = chunk * kept_count + kept. A group of threads takes every n-th
// pack of it, and the last elements, fewer than a pack, go to the last chunk.
template <class Kernel>
OPSMITH_DEVICE void segment(const Kernel& kernel) {
  using Index = typename Kernel::Index;
  constexpr int V = Kernel::vector;
  const auto& loops = kernel.loops;
  await_launch_before();
  if (loops.chunks > 1) admit_launch_after();  // which combines them
  const int group = int(loops.group);
  const int shift = 31 - __clz(group);  // of a power of two
  const Index items = loops.kept_count * loops.chunks;
  const Index item = Index(blockIdx.x) * (Kernel::threads >> shift) + (threadIdx.x >> shift);
  typename Kernel::Sums sums{};
  if (item < items) {
    Index chunk = item;
    if (loops.kept_count > 1) chunk = divide(item, loops.kept_count);
    const auto start = kernel.start(item - chunk * loops.kept_count);
    const Index packs = loops.length / V;
    const Index lane = threadIdx.x & (group - 1);
    const auto locate = [&](Index pack) { return kernel.locate(start, pack * V); };
    sum_terms<Kernel, typename Kernel::Sums, Index>(
        kernel, sums, chunk * group + lane, packs, loops.chunks * group, locate);
    if constexpr (V > 1) {
      // There may be more of it than threads in the group.
      const Index from = chunk + 1 == loops.chunks ? packs * V + lane : loops.length;
      for (Index index = from; index < loops.length; index += group) {
        sum_at<1>(kernel, sums, kernel.locate(start, index));
      }
    }
  }
  kernel.finish(sums, SegmentSum<Kernel::threads, Index>{group, item, items});
}

// --- column: sums down the columns ----------------------------------------------------------------------------------

// The arrangement of a block's threads, in one launch parameter: computed once by the launch planner (column_block).
struct ColumnBlock {
  unsigned int width;    // threads side by side, each with a pack
  unsigned int height;   // threads below one another
  unsigned int inverse;  // thread / width = thread * inverse / 2^15
  unsigned int share;    // 2^share threads add up a column
  bool pairs;            // very few elements: at most a pair per thread, and one block per column
  bool one_chunk;        // of the rows

  OPSMITH_DEVICE explicit ColumnBlock(int64_t encoded)
      : width(encoded & 0xffff),
        height(encoded >> 16 & 0xffff),
        inverse(encoded >> 32 & 0xffff),
        share(encoded >> 48 & 0xff),
        pairs((encoded >> 56 & 1) != 0),
        one_chunk((encoded >> 57 & 1) != 0) {}
};

template <class I, int Kept, int Reduced>
struct ColumnLoops {
  I columns;
  I kept_count;
  I rows;
  I chunks;
  ColumnBlock block;
  Sizes<Kept, I> kept_sizes;
  Sizes<Reduced, I> reduced_sizes;

  template <int Count>
  OPSMITH_DEVICE ColumnLoops(const Parameters<Count>& parameters, int place)
      : columns(I(parameters.value[place])),
        kept_count(I(parameters.value[place + 1])),
        rows(I(parameters.value[place + 2])),
        chunks(I(parameters.value[place + 3])),
        block(parameters.value[place + 4]),
        kept_sizes(parameters, place + 5),
        reduced_sizes(parameters, place + 5 + Kept) {}

  // Whether a block has all columns, in packs of V.
  template <int V>
  OPSMITH_DEVICE bool is_one_tile() const {
    return columns <= block.width * (block.pairs ? lesser(V, 2) : V);
  }
};

// What the threads of a block have of their columns, for one result after the other.
template <int Threads, int V, class A>
OPSMITH_DEVICE A* sums_of_threads() {
  __shared__ A by_thread[V * (Threads + 1)];
  return by_thread;
}

// One sum per column, shared by neighbouring threads of a warp: each adds at least V terms, and at least four.
// Which ones is worked out before the threads meet.
template <int Threads, int V, class Index>
class ColumnSum {
  static_assert(Threads % (32 * V) == 0, "a thread for each column");

 public:
  // `first`: the tile's first column; `row`: of partial sums, chunk * kept_count + kept.
  OPSMITH_DEVICE ColumnSum(const ColumnBlock& block, Index first, Index columns, Index row)
      : block_(block),
        column_of_tile_(threadIdx.x >> block.share),
        part_(threadIdx.x & ((1u << block.share) - 1)),
        term_(column_of_tile_ % V * (Threads + 1) + column_of_tile_ / V + part_ * block.width),
        is_column_(column_of_tile_ < block.width * V),
        is_result_(part_ == 0 && is_column_ && first + column_of_tile_ < columns),
        index_(row * columns + first + column_of_tile_) {}

  template <int K, class A>
  OPSMITH_DEVICE void gather(A value) const {
    gather_warp<K, Threads>(value);
  }
  template <int K, class A>
  OPSMITH_DEVICE void gather(const A (&values)[V]) const {
    if (K == 0) write(values);
  }

  OPSMITH_DEVICE void meet() const { __syncthreads(); }

  // One sum per block.
  template <int K, class A, class Partial>
  OPSMITH_DEVICE void scatter(A, const Partial& partial) const {
    if (adds_up<K, Threads>()) put(partial, blockIdx.x, gathered<K, Threads, A>());
  }

  template <int K, class A, class Partial>
  OPSMITH_DEVICE void scatter(const A (&values)[V], const Partial& partial) const {
    if (K > 0) {
      __syncthreads();  // the previous result's are still being read
      write(values);
      __syncthreads();
    }
    A sum = 0;
    if (is_column_) {
      const A* terms = sums_of_threads<Threads, V, A>() + term_;
      const unsigned int stride = block_.width << block_.share;
      unsigned int y = part_;
      constexpr unsigned int least = V > 4 ? V : 4;
      if (block_.height >= least) {
#pragma unroll
        for (unsigned int k = 0; k < least; ++k) sum += terms[k * stride];
        y += least << block_.share;
        terms += least * stride;
      }
#pragma unroll 1
      for (; y < block_.height; y += 1u << block_.share, terms += stride) sum += *terms;
    }
    sum = warp_sum(sum, 1u << block_.share);
    if (is_result_) put(partial, index_, sum);
  }

 private:
  template <class A>
  OPSMITH_DEVICE void write(const A (&values)[V]) const {
    A* by_thread = sums_of_threads<Threads, V, A>();
#pragma unroll
    for (int lane = 0; lane < V; ++lane) by_thread[lane * (Threads + 1) + threadIdx.x] = values[lane];
  }

  const ColumnBlock block_;
  const unsigned int column_of_tile_;  // that this thread adds up with its neighbours
  const unsigned int part_;            // which of them it is
  const unsigned int term_;            // where its first term is
  const bool is_column_;               // whether the tile has that column
  const bool is_result_;               // whether this thread writes the sum
  const Index index_;                  // and where
};

// A block keeps a tile of columns, `width` packs wide, and its threads form `height` rows; a chunk is every n-th group
// of such rows: block = (chunk * tiles + tile) * kept_count + kept.
template <class Kernel>
OPSMITH_DEVICE void column(const Kernel& kernel) {
  using Index = typename Kernel::Index;
  constexpr int V = Kernel::vector;
  const auto& loops = kernel.loops;
  await_launch_before();
  if (!loops.block.one_chunk) admit_launch_after();  // which combines them
  const unsigned int width = loops.block.width;
  const unsigned int height = loops.block.height;
  const unsigned int y = threadIdx.x * loops.block.inverse >> 15;
  const unsigned int x = threadIdx.x - y * width;
  if (loops.block.pairs) {  // first and separate: a small launch mostly waits for its instructions
    constexpr int P = V > 2 ? 2 : V;
    typename Kernel::template Sums<P> sums{};
    const Index first = blockIdx.x * width * P;
    const Index column = first + x * P;
    if (y < height && column < loops.columns) sum_at<P>(kernel, sums, kernel.locate(kernel.start(0, column), y));
    kernel.finish(sums, ColumnSum<Kernel::threads, P, Index>(loops.block, first, loops.columns, 0));
    return;
  }
  const Index packs = loops.columns / V;
  Index tile = blockIdx.x, kept = 0, chunk = 0;
  if (loops.kept_count > 1) {
    tile = divide(tile, loops.kept_count);
    kept = blockIdx.x - tile * loops.kept_count;
  }
  if (loops.chunks > 1) {
    const Index tiles = divide_up<Index>(packs, width);
    chunk = divide(tile, tiles);
    tile -= chunk * tiles;
  }
  const Index pack = tile * width + x;
  typename Kernel::template Sums<V> sums{};
  if (y < height && pack < packs) {
    const auto start = kernel.start(kept, pack * V);
    const auto locate = [&](Index row) { return kernel.locate(start, row); };
    sum_terms<Kernel, typename Kernel::template Sums<V>, Index>(
        kernel, sums, chunk * height + y, loops.rows, loops.chunks * height, locate);
  }
  const Index row_of_partials = chunk * loops.kept_count + kept;
  kernel.finish(
      sums, ColumnSum<Kernel::threads, V, Index>(loops.block, tile * width * V, loops.columns, row_of_partials));
}

// Adds the values of the thread's V columns to their sums.
template <class A, int V, class T>
OPSMITH_DEVICE void add_columns(A (&sums)[V], const T (&values)[V]) {
#pragma unroll
  for (int lane = 0; lane < V; ++lane) sums[lane] += cast<A>(values[lane]);
}

// --- combine: the sum of partial sums -------------------------------------------------------------------------------

// result[x] = sum over r of partial[r * columns + x], in double. A launch takes several results of one dtype, four
// parameters each: the partial sums, the result, rows, columns; blockIdx.y selects one.
template <int Threads, class T, class A, int Count>
OPSMITH_DEVICE void combine(const Parameters<Count>& parameters) {
  __shared__ double by_row[Threads];
  await_launch_before();
  const int job = 4 * blockIdx.y;
  const A* partial = pointer<const A>(parameters, job);
  const int64_t rows = parameters.value[job + 2];
  const int64_t columns = parameters.value[job + 3];
  const int width = int(lesser<int64_t>(columns, 32));
  const int height = Threads / width;
  const int y = threadIdx.x / width;
  const int64_t x = int64_t(blockIdx.x) * width + (threadIdx.x - y * width);
  double sum = 0;
  if (y < height && x < columns) {
#pragma unroll 4
    for (int64_t row = y; row < rows; row += height) sum += partial[row * columns + x];
  }
  by_row[threadIdx.x] = sum;
  __syncthreads();
  int step = Threads / 2;
  while (step >= rows && step > 1) step /= 2;  // below are zeros
  for (; step > 0; step /= 2) {
    if (y < step && y + step < height) by_row[threadIdx.x] += by_row[threadIdx.x + step * width];
    __syncthreads();
  }
  if (y == 0 && x < columns) pointer<T>(parameters, job + 1)[x] = narrow<T>(cast<A>(by_row[threadIdx.x]));
}

}  // namespace opsmith
