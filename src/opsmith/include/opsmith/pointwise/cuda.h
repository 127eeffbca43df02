// The drivers of pointwise kernels on the GPU: who computes which elements, and how sums are made.
//
// A kernel is a struct that opsmith writes for one operator and one layout: it locates, loads, computes and stores. A
// driver here hands it V elements at a time ("a pack": 16 bytes of the narrowest tensor) and U packs a turn, so that U
// loads of each tensor are on their way before the first is used; where a sum has registers to spare, those of the next
// turn are too. Loads past the end repeat an earlier pack instead of branching; their results are not stored and not
// summed.
//
// Sums are the same in every run: threads, then warps, then blocks add in an order that sizes alone decide.
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

template <int V, class Kernel>
OPSMITH_DEVICE typename Kernel::template Outputs<V> computed(
    const Kernel& kernel, const typename Kernel::template Inputs<V>& inputs) {
  typename Kernel::template Outputs<V> outputs;
#pragma unroll
  for (int lane = 0; lane < V; ++lane) kernel.compute(inputs, outputs, lane);
  return outputs;
}

// --- stream: every element once -----------------------------------------------------------------------------------

template <class I, int Inner>
struct StreamWalk {
  I count;
  Extent<Inner, I> sizes;

  template <int Count>
  OPSMITH_DEVICE StreamWalk(const Words<Count>& words, int place)
      : count(I(words.word[place])), sizes(words, place + 1) {}
};

// One block computes threads * U packs, neighbouring threads neighbouring packs. The elements that fill no pack, fewer
// than V, go to the first threads of the first block. What is small is launched with a thread for each pack, or for each
// element, and then each computes one.
template <class Kernel>
OPSMITH_DEVICE void stream(const Kernel& kernel) {
  using Index = typename Kernel::Index;
  constexpr int V = Kernel::vector;
  constexpr int U = Kernel::unroll;
  const Index threads = Index(gridDim.x) * Kernel::threads;
  const bool one_element = U * V > 1 && threads >= kernel.walk.count;
  const Index packs = one_element ? 0 : kernel.walk.count / V;
  const bool one_pack = U > 1 && threads >= packs;
  const Index first = Index(blockIdx.x) * (one_pack ? Kernel::threads : Kernel::threads * U) + threadIdx.x;
  if (first < packs) {
    typename Kernel::Place places[U];
    typename Kernel::template Inputs<V> inputs[U];
    const auto is_mine = [&](int u) { return u == 0 || (!one_pack && first + u * Kernel::threads < packs); };
#pragma unroll
    for (int u = 0; u < U; ++u) {
      // Past the end the thread's own first pack: another's may be written already where a tensor is changed in place.
      places[u] = kernel.locate((is_mine(u) ? first + u * Kernel::threads : first) * V);
      inputs[u] = kernel.template load<V>(places[u]);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const auto outputs = computed<V>(kernel, inputs[u]);
      if (is_mine(u)) kernel.template store<V>(outputs, places[u]);
    }
  }
  if constexpr (U * V > 1) {
    const Index index = (one_element ? Index(blockIdx.x) * Kernel::threads : packs * V) + threadIdx.x;
    if ((one_element || blockIdx.x == 0) && index < kernel.walk.count) {
      const auto place = kernel.locate(index);
      kernel.template store<1>(computed<1>(kernel, kernel.template load<1>(place)), place);
    }
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

// Over `width` neighbouring lanes of a warp, a power of two; the first of them holds the sum.
template <class A>
OPSMITH_DEVICE A warp_sum(A value, int width) {
  for (int step = width / 2; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step, width);
  return value;
}

// Over a block; its first thread holds the sum.
template <int Threads, class A>
OPSMITH_DEVICE A block_sum(A value) {
  __shared__ A by_warp[Threads / 32];
  value = warp_sum(value, 32);
  if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int warp = 1; warp < Threads / 32; ++warp) value += by_warp[warp];
  }
  __syncthreads();  // by_warp may be written again
  return value;
}

// Where the sums of a result go: accumulators, to be combined. The sums themselves where each element of the result has
// one; such a result may be of a half type.
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

template <class Kernel>
struct Turn {
  typename Kernel::Place places[Kernel::unroll];
  typename Kernel::template Inputs<Kernel::vector> inputs[Kernel::unroll];
};

// Packs first, first + stride, ... below `end`: computed, stored, summed. All threads of a launch go through memory
// side by side: where each kept to a stretch of its own, 2^28 floats were more pages at a time than the GPU translates
// at once, and took 15 % longer.
template <class Kernel, class Index, class Locate>
OPSMITH_DEVICE void sum_along(
    const Kernel& kernel, typename Kernel::Sums& sums, Index first, Index end, Index stride, const Locate& locate) {
  constexpr int V = Kernel::vector;
  constexpr int U = Kernel::unroll;
  const auto fetch = [&](Turn<Kernel>& turn, Index from) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      turn.places[u] = locate(from + u * stride < end ? from + u * stride : from);
      turn.inputs[u] = kernel.template load<V>(turn.places[u]);
    }
  };
  if (first >= end) return;
  Turn<Kernel> turn;
  fetch(turn, first);
  while (true) {
    const Index next = first + U * stride;
    Turn<Kernel> following = turn;
    if (Kernel::ahead && next < end) fetch(following, next);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const auto outputs = computed<V>(kernel, turn.inputs[u]);
      if (first + u * stride < end) {
        kernel.template store<V>(outputs, turn.places[u]);
        kernel.template add<V>(sums, outputs);
      }
    }
    if (next >= end) return;
    if constexpr (Kernel::ahead) {
      turn = following;
    } else {
      fetch(turn, next);
    }
    first = next;
  }
}

// --- segment: sums along the innermost dimension --------------------------------------------------------------------

template <class I, int Kept, int Reduced>
struct SegmentWalk {
  I length;
  I kept_count;
  I chunks;
  I group;  // threads that share a chunk: a power of two up to a warp, or a block
  Extent<Kept, I> kept_sizes;
  Extent<Reduced, I> reduced_sizes;

  template <int Count>
  OPSMITH_DEVICE SegmentWalk(const Words<Count>& words, int place)
      : length(I(words.word[place])),
        kept_count(I(words.word[place + 1])),
        chunks(I(words.word[place + 2])),
        group(I(words.word[place + 3])),
        kept_sizes(words, place + 4),
        reduced_sizes(words, place + 4 + Kept) {}
};

template <int Threads, class Index>
struct SegmentSum {
  int group;
  Index item;
  Index items;

  template <class A, class Partial>
  OPSMITH_DEVICE void operator()(A value, const Partial& partial) const {
    value = group <= 32 ? warp_sum(value, group) : block_sum<Threads>(value);
    if (threadIdx.x % group == 0 && item < items) put(partial, item, value);
  }
};

// An item is a chunk of one kept combination: item = chunk * kept_count + kept. A group of threads takes every so many
// packs of it, and what fills no pack goes to the last chunk.
template <class Kernel>
OPSMITH_DEVICE void segment(const Kernel& kernel) {
  using Index = typename Kernel::Index;
  constexpr int V = Kernel::vector;
  const auto& walk = kernel.walk;
  const int group = int(walk.group);
  const Index items = walk.kept_count * walk.chunks;
  const Index item = Index(blockIdx.x) * (Kernel::threads / group) + threadIdx.x / group;
  typename Kernel::Sums sums{};
  if (item < items) {
    const Index chunk = divide(item, walk.kept_count);
    const auto start = kernel.start(item - chunk * walk.kept_count);
    const Index packs = walk.length / V;
    const Index lane = threadIdx.x % group;
    const auto locate = [&](Index pack) { return kernel.locate(start, pack * V); };
    sum_along<Kernel, Index>(kernel, sums, chunk * group + lane, packs, walk.chunks * group, locate);
    if constexpr (V > 1) {
      // There may be more of it than threads in the group.
      const Index from = chunk + 1 == walk.chunks ? packs * V + lane : walk.length;
      for (Index index = from; index < walk.length; index += group) {
        const auto place = kernel.locate(start, index);
        const auto outputs = computed<1>(kernel, kernel.template load<1>(place));
        kernel.template store<1>(outputs, place);
        kernel.template add<1>(sums, outputs);
      }
    }
  }
  kernel.finish(sums, SegmentSum<Kernel::threads, Index>{group, item, items});
}

// --- column: sums down the columns ----------------------------------------------------------------------------------

template <class I, int Kept, int Reduced>
struct ColumnWalk {
  I columns;
  I kept_count;
  I rows;
  I chunks;
  I tile;  // packs side by side in a block, at most
  Extent<Kept, I> kept_sizes;
  Extent<Reduced, I> reduced_sizes;

  template <int Count>
  OPSMITH_DEVICE ColumnWalk(const Words<Count>& words, int place)
      : columns(I(words.word[place])),
        kept_count(I(words.word[place + 1])),
        rows(I(words.word[place + 2])),
        chunks(I(words.word[place + 3])),
        tile(I(words.word[place + 4])),
        kept_sizes(words, place + 5),
        reduced_sizes(words, place + 5 + Kept) {}
};

template <int Threads, class Index>
struct ColumnSum {
  int width;        // threads side by side
  int height;       // threads below one another
  Index first;      // the tile's first column
  Index columns;
  Index row_of_partials;  // chunk * kept_count + kept

  // One sum a column.
  template <class A, int V, class Partial>
  OPSMITH_DEVICE void operator()(const A (&values)[V], const Partial& partial) const {
    __shared__ A by_row[Threads * V];
    const int tile = width * V;
    if (int(threadIdx.x) < width * height) {
#pragma unroll
      for (int lane = 0; lane < V; ++lane) by_row[threadIdx.x * V + lane] = values[lane];
    }
    __syncthreads();
    for (int column = threadIdx.x; column < tile; column += Threads) {
      if (first + column < columns) {
        A sum = by_row[column];
        for (int row = 1; row < height; ++row) sum += by_row[row * tile + column];
        put(partial, row_of_partials * columns + first + column, sum);
      }
    }
    __syncthreads();  // by_row may be written again
  }

  // One sum a block.
  template <class A, class Partial>
  OPSMITH_DEVICE void operator()(A value, const Partial& partial) const {
    value = block_sum<Threads>(value);
    if (threadIdx.x == 0) put(partial, blockIdx.x, value);
  }
};

// A block keeps a tile of columns, `width` packs wide, and its threads stand in `height` rows; a chunk is every so many
// such rows: block = (chunk * tiles + tile) * kept_count + kept.
template <class Kernel>
OPSMITH_DEVICE void column(const Kernel& kernel) {
  using Index = typename Kernel::Index;
  constexpr int V = Kernel::vector;
  const auto& walk = kernel.walk;
  const Index packs = walk.columns / V;
  const Index tiles = divide_up<Index>(packs, walk.tile);
  const int width = int(divide_up(packs, tiles));
  const int height = Kernel::threads / width;
  const Index outer = divide(Index(blockIdx.x), walk.kept_count);  // chunk * tiles + tile
  const Index kept = blockIdx.x - outer * walk.kept_count;
  const Index chunk = divide(outer, tiles);
  const Index tile = outer - chunk * tiles;
  const int y = threadIdx.x / width;
  const Index pack = tile * width + (threadIdx.x - y * width);
  typename Kernel::Sums sums{};
  if (y < height && pack < packs) {
    const auto start = kernel.start(kept, pack * V);
    const auto locate = [&](Index row) { return kernel.locate(start, row); };
    sum_along<Kernel, Index>(kernel, sums, chunk * height + y, walk.rows, walk.chunks * height, locate);
  }
  const Index row_of_partials = chunk * walk.kept_count + kept;
  kernel.finish(
      sums, ColumnSum<Kernel::threads, Index>{width, height, tile * width * V, walk.columns, row_of_partials});
}

// Adds what each of the threads' V columns gave to their sums.
template <class A, int V, class T>
OPSMITH_DEVICE void add_columns(A (&sums)[V], const T (&values)[V]) {
#pragma unroll
  for (int lane = 0; lane < V; ++lane) sums[lane] += cast<A>(values[lane]);
}

// --- combine: the sum of partial sums -------------------------------------------------------------------------------

// result[x] = sum over r of partial[r * columns + x], in double. A launch takes several results of one dtype, four
// words each: the partial sums, the result, rows, columns; blockIdx.y tells which.
template <int Threads, class T, class A, int Count>
OPSMITH_DEVICE void combine(const Words<Count>& words) {
  __shared__ double by_row[Threads];
  const int job = 4 * blockIdx.y;
  const A* partial = pointer<const A>(words, job);
  const int64_t rows = words.word[job + 2];
  const int64_t columns = words.word[job + 3];
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
  for (int step = Threads / 2; step > 0; step /= 2) {
    if (y < step && y + step < height) by_row[threadIdx.x] += by_row[threadIdx.x + step * width];
    __syncthreads();
  }
  if (y == 0 && x < columns) pointer<T>(words, job + 1)[x] = narrow<T>(cast<A>(by_row[threadIdx.x]));
}

}  // namespace opsmith
