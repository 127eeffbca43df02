// Drivers of pointwise kernels on the CPU: the loops over a kernel's elements.
//
// A task of `stream` is an element, of `segment` and `column` a part of a reduction; torch_parallel_for assigns ranges
// of tasks to threads. What a task computes, and in which order it adds, depends on sizes alone, never on this
// assignment. The last vector of a row may overlap the one before it and compute the elements they share twice; but not
// where a result is also an input, because those elements have changed by then.
//
// A kernel K is a struct with
//   INNER, OUTER    the numbers of dimensions of its loops (see planner/__init__.py's LayoutClass)
//   STRIDED         how many operands have strides: their offsets are what a Place carries
//   SUMS            how many results are summed; 0 in `stream`
//   loops           the launch parameters after pointers and scalars: sizes, strides
//   operator()      loads a vector of elements at a Place, computes, stores, and adds to `Sums`
//   each_sum        calls visit(number, vector of Sums, pointer to partials, PerTask or PerColumn) for each sum
#pragma once

#include "cpu_division.h"
#include "cpu_math.h"
#include "cpu_place.h"

namespace opsmith {

// ---- Sums. A vector adds up a block in its own type; blocks are added in double.

struct PerTask {};    // one sum for all elements of a task
struct PerColumn {};  // one for each column
template <typename Role>
constexpr bool is_per_task = false;
template <>
constexpr bool is_per_task<PerTask> = true;

// Into the totals of its lanes, as many at a time as a register has doubles.
template <typename V>
OPSMITH_INLINE void flush(V& sum, double* total) {
  constexpr int PART = LANES * 8 <= OPSMITH_BYTES ? LANES : OPSMITH_BYTES / 8;
  typedef Element<V> Part __attribute__((vector_size(sizeof(Element<V>) * PART)));
  typedef double Doubles __attribute__((vector_size(8 * PART)));
  Part parts[LANES / PART];
  __builtin_memcpy(parts, &sum, sizeof sum);
  for (int part = 0; part < LANES / PART; ++part) {
    Doubles doubles;
    __builtin_memcpy(&doubles, total + part * PART, sizeof doubles);
    doubles += __builtin_convertvector(parts[part], Doubles);
    __builtin_memcpy(total + part * PART, &doubles, sizeof doubles);
  }
  sum = V{};
}
inline __attribute__((noinline)) double total_of(const double* lanes) {
  double sums[LANES];
  for (int lane = 0; lane < LANES; ++lane) sums[lane] = lanes[lane];
  for (int half = LANES / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

struct NoSums {};
template <typename K, bool = (K::SUMS > 0)>
struct SumsOf {
  using type = NoSums;
};
template <typename K>
struct SumsOf<K, true> {
  using type = typename K::Sums;
};
template <typename K>
using Sums = typename SumsOf<K>::type;

template <typename K, typename Place>
OPSMITH_INLINE void apply(const K& kernel, const Place& at, Sums<K>& sums) {
  if constexpr (K::SUMS > 0) {
    kernel(at, sums);
  } else {
    kernel(at);
  }
}
// Rare places are compiled once, out of line. The kernel is passed by value: with its address taken, no loop could keep
// it in registers.
template <typename K>
__attribute__((noinline)) Sums<K> apply_apart(K kernel, const Scattered<K::STRIDED>& at, Sums<K> sums) {
  apply(kernel, at, sums);
  return sums;
}

// Vectors that are added up before they go to the totals.
constexpr int64_t BLOCK = 64;

// The sums of a task: one block in `sums`, the blocks before it in `total`.
template <typename K>
struct TaskSums {
  Sums<K> sums{};
  int64_t room = BLOCK;
  double total[at_least_one(K::SUMS)][LANES] = {};

  OPSMITH_INLINE void added(const K& kernel, int64_t vectors) {
    if constexpr (K::SUMS > 0) {
      room -= vectors;
      if (room <= 0) finish(kernel);
    }
  }
  OPSMITH_INLINE void finish(const K& kernel) {
    if constexpr (K::SUMS > 0) {
      kernel.each_sum(sums, [&](int number, auto& sum, auto*, auto) { flush(sum, total[number]); });
      room = BLOCK;
    }
  }
};

// ---- Runs of elements.

// `length` neighbours from the place `at` on, at least a vector of them.
template <typename K>
OPSMITH_INLINE void run_row(
    const K& kernel, Row<K::STRIDED, false> at, int64_t length, TaskSums<K>& task, bool in_place = false) {
  Row<K::STRIDED, true> last = {at.index, at.position, {}, {}, 0};
  int64_t left = length;
  while (left >= LANES) {
    int64_t vectors = left / LANES;
    if (K::SUMS > 0 && vectors > task.room) vectors = task.room;
    for (int64_t vector = 0; vector < vectors; ++vector) {
      apply(kernel, at, task.sums);
      at.index += LANES;
      at.position += LANES;
    }
    left -= vectors * LANES;
    task.added(kernel, vectors);
  }
  if (left == 0) return;
  if (K::SUMS == 0 && in_place) {
    Scattered<K::STRIDED> rest;
    rest.index = at.index;
    rest.count = int(left);
    for (int lane = 0; lane < rest.count; ++lane) {
      for (int k = 0; k < K::STRIDED; ++k) rest.offset[k][lane] = at.offset[k] + (at.position + lane) * at.stride[k];
    }
    apply_apart(kernel, rest, task.sums);
    return;
  }
  last.index += length - LANES;
  last.position += length - LANES;
  last.stale = int(LANES - left);
  for (int k = 0; k < K::STRIDED; ++k) {
    last.offset[k] = at.offset[k];
    last.stride[k] = at.stride[k];
  }
  apply(kernel, last, task.sums);
  task.added(kernel, 1);
}

// Elements [begin, end) of the dimensions of a cursor at `begin`.
template <typename K, typename Cursor>
OPSMITH_INLINE void run(
    const K& kernel, Cursor cursor, int64_t begin, int64_t end, TaskSums<K>& task, bool in_place = false) {
  while (begin < end) {
    const int64_t rest = cursor.sizes[0] - cursor.counter[0];
    const int64_t length = rest < end - begin ? rest : end - begin;
    if (length >= LANES) {
      Row<K::STRIDED, false> at = {begin, 0, {}, {}, 0};
      for (int k = 0; k < K::STRIDED; ++k) {
        at.offset[k] = cursor.offset[k];
        at.stride[k] = cursor.stride(k);
      }
      run_row(kernel, at, length, task, in_place);
      cursor.advance(length);
      begin += length;
    } else {
      // Short rows: a vector takes elements from as many as it needs.
      Scattered<K::STRIDED> at;
      at.index = begin;
      at.count = int(end - begin < LANES ? end - begin : LANES);
      for (int lane = 0; lane < at.count; ++lane) {
        for (int k = 0; k < K::STRIDED; ++k) at.offset[k][lane] = cursor.offset[k];
        cursor.advance(1);
      }
      task.sums = apply_apart(kernel, at, task.sums);
      task.added(kernel, 1);
      begin += at.count;
    }
  }
  task.finish(kernel);
}

// ---- The drivers.

// Whether a result is also an input: the first parameters are pointers to the inputs, then to the results.
inline bool is_in_place(const void* parameters, int reads, int results) {
  const int64_t* address = static_cast<const int64_t*>(parameters);
  for (int read = 0; read < reads; ++read) {
    for (int result = reads; result < reads + results; ++result) {
      if (address[read] == address[result]) return true;
    }
  }
  return false;
}

// Every element once. Tasks are elements. Parameters: count; with strided operands sizes[INNER],
// strides[STRIDED][INNER].
template <typename K>
OPSMITH_INLINE void stream(int64_t begin, int64_t end, const K& kernel, bool in_place) {
  TaskSums<K> nothing;
  if constexpr (K::STRIDED > 0) {
    const int64_t* sizes = kernel.loops + 1;
    Cursor<K::STRIDED, K::INNER, K::INNER> cursor(sizes, sizes + K::INNER);
    cursor.locate(begin);
    run(kernel, cursor, begin, end, nothing, in_place);
  } else if (end - begin >= LANES) {
    run_row(kernel, {begin, 0, {}, {}, 0}, end - begin, nothing, in_place);
  } else if (begin < end) {
    Scattered<0> at;
    at.index = begin;
    at.count = int(end - begin);
    apply_apart(kernel, at, NoSums{});
  }
}

// Sums along the innermost dimension. Task k * chunks + c runs over chunk c of the reduced elements of combination k.
// Parameters: length, kept_count, chunks, chunk_length, kept sizes[OUTER], reduced sizes[INNER]; for each strided
// operand kept strides[OUTER], reduced strides[INNER].
template <typename K>
OPSMITH_INLINE void segment(int64_t begin, int64_t end, const K& kernel) {
  const int64_t length = kernel.loops[0], kept_count = kernel.loops[1];
  const int64_t chunks = kernel.loops[2], chunk_length = kernel.loops[3];
  const int64_t* sizes = kernel.loops + 4;
  const int64_t* strides = sizes + K::OUTER + K::INNER;
  constexpr int PITCH = K::OUTER + K::INNER;
  Cursor<K::STRIDED, K::OUTER, PITCH> kept(sizes, strides);
  int64_t k = begin / chunks, c = begin % chunks;
  kept.locate(k);
  for (int64_t number = begin; number < end; ++number) {
    Cursor<K::STRIDED, K::INNER, PITCH> cursor(sizes + K::OUTER, strides + K::OUTER);
    for (int operand = 0; operand < K::STRIDED; ++operand) cursor.offset[operand] = kept.offset[operand];
    const int64_t first = c * chunk_length, last = first + chunk_length;
    cursor.locate(first);
    TaskSums<K> task;
    run(kernel, cursor, first, last < length ? last : length, task);
    kernel.each_sum(task.sums, [&](int sum, auto&, auto* partial, auto) {
      partial[c * kept_count + k] = total_of(task.total[sum]);
    });
    if (++c == chunks) {
      c = 0;
      ++k;
      kept.advance(1);
    }
  }
}

// Columns of one task, and rows whose vectors are added before they go to the totals.
constexpr int64_t TILE = 1024;
constexpr int ROWS = 4;
static_assert(TILE >= LANES * LANES, "a narrow tile has totals for every lane of every column");

// Rows of at least a vector: ROWS rows at a time, all columns of the tile.
template <typename K, typename Cursor>
OPSMITH_INLINE void wide_tile(const K& kernel, Cursor cursor, const int64_t* strides, int64_t left, int64_t width,
                              int64_t rows, double (*total)[TILE]) {
  Sums<K> sums{};
  const auto vector = [&](auto at, const int64_t (*offset)[at_least_one(K::STRIDED)], int64_t count) {
#pragma GCC unroll 1  // a kernel may be long
    for (int64_t row = 0; row < count; ++row) {
      for (int k = 0; k < K::STRIDED; ++k) at.offset[k] = offset[row][k];
      apply(kernel, at, sums);
    }
    kernel.each_sum(sums, [&](int sum, auto& value, auto*, auto role) {
      if constexpr (!is_per_task<decltype(role)>) flush(value, total[sum] + (at.position - left));
    });
  };
  Row<K::STRIDED, false> at = {};
  Row<K::STRIDED, true> edge = {};
  edge.position = left + width - LANES;
  edge.stale = int(LANES - width % LANES);
  for (int k = 0; k < K::STRIDED; ++k) at.stride[k] = edge.stride[k] = strides[k * Cursor::pitch];
  while (rows > 0) {
    int64_t offset[ROWS][at_least_one(K::STRIDED)];
    const int64_t count = rows < ROWS ? rows : ROWS;
    for (int64_t row = 0; row < count; ++row) {
      for (int k = 0; k < K::STRIDED; ++k) offset[row][k] = cursor.offset[k];
      cursor.advance(1);
    }
    for (at.position = left; at.position + LANES <= left + width; at.position += LANES) vector(at, offset, count);
    if (at.position < left + width) vector(edge, offset, count);
    kernel.each_sum(sums, [&](int sum, auto& value, auto*, auto role) {
      if constexpr (is_per_task<decltype(role)>) flush(value, total[sum]);
    });
    rows -= count;
  }
}

// Rows shorter than a vector: a vector takes LANES rows of one column, whose total has a number for each lane.
template <typename K, typename Cursor>
OPSMITH_INLINE void narrow_tile(const K& kernel, Cursor cursor, const int64_t* strides, int64_t left, int64_t width,
                                int64_t rows, double (*total)[TILE]) {
  for (; rows > 0; rows -= LANES) {
    int64_t offset[at_least_one(K::STRIDED)][LANES];
    Scattered<K::STRIDED> at;
    at.index = 0;
    at.count = int(rows < LANES ? rows : LANES);
    for (int lane = 0; lane < at.count; ++lane) {
      for (int k = 0; k < K::STRIDED; ++k) offset[k][lane] = cursor.offset[k];
      cursor.advance(1);
    }
    for (int64_t x = 0; x < width; ++x) {
      for (int k = 0; k < K::STRIDED; ++k) {
        const int64_t across = (left + x) * strides[k * Cursor::pitch];
        for (int lane = 0; lane < at.count; ++lane) at.offset[k][lane] = offset[k][lane] + across;
      }
      Sums<K> sums = apply_apart(kernel, at, Sums<K>{});
      kernel.each_sum(sums, [&](int sum, auto& value, auto*, auto role) {
        flush(value, total[sum] + (is_per_task<decltype(role)> ? 0 : x * LANES));
      });
    }
  }
}

// Sums down the columns of the innermost dimension, a vector of columns at a time. Task (k * chunks + c) * tiles + t
// runs over rows [c * rows_per_chunk, ...) and columns [t * TILE, ...) of combination k. Parameters: columns,
// kept_count, rows, chunks, rows_per_chunk, kept sizes[OUTER], reduced sizes[INNER]; for each strided operand the
// stride along columns, kept strides[OUTER], reduced strides[INNER].
template <typename K>
OPSMITH_INLINE void column(int64_t begin, int64_t end, const K& kernel) {
  const int64_t columns = kernel.loops[0], kept_count = kernel.loops[1], rows = kernel.loops[2];
  const int64_t chunks = kernel.loops[3], rows_per_chunk = kernel.loops[4];
  const int64_t* sizes = kernel.loops + 5;
  const int64_t* strides = sizes + K::OUTER + K::INNER;
  constexpr int PITCH = 1 + K::OUTER + K::INNER;
  const int64_t tiles = (columns + TILE - 1) / TILE;
  double total[at_least_one(K::SUMS)][TILE];

  for (int64_t task = begin; task < end; ++task) {
    const int64_t tile = task % tiles, c = task / tiles % chunks, k = task / tiles / chunks;
    const int64_t left = tile * TILE;
    const int64_t width = columns - left < TILE ? columns - left : TILE;
    const int64_t first = c * rows_per_chunk;
    const int64_t last = first + rows_per_chunk < rows ? first + rows_per_chunk : rows;
    Cursor<K::STRIDED, K::OUTER, PITCH> kept(sizes, strides + 1);
    kept.locate(k);
    Cursor<K::STRIDED, K::INNER, PITCH> cursor(sizes + K::OUTER, strides + 1 + K::OUTER);
    for (int operand = 0; operand < K::STRIDED; ++operand) cursor.offset[operand] = kept.offset[operand];
    cursor.locate(first);
    const bool narrow = width < LANES;
    const int64_t totals = narrow ? width * LANES : width;
    for (int sum = 0; sum < K::SUMS; ++sum) __builtin_memset(total[sum], 0, sizeof(double) * totals);

    if (narrow) {
      narrow_tile(kernel, cursor, strides, left, width, last - first, total);
    } else {
      wide_tile(kernel, cursor, strides, left, width, last - first, total);
    }

    Sums<K> sums;
    kernel.each_sum(sums, [&](int sum, auto&, auto* partial, auto role) {
      if constexpr (is_per_task<decltype(role)>) {
        partial[(c * tiles + tile) * kept_count + k] = total_of(total[sum]);
      } else {
        auto* row = partial + (c * kept_count + k) * columns + left;
        if (narrow) {
          for (int64_t x = 0; x < width; ++x) row[x] = total_of(total[sum] + x * LANES);
        } else {
          for (int64_t x = 0; x < width; ++x) row[x] = total[sum][x];
        }
      }
    });
  }
}

// result[x] = sum over r of partial[r * columns + x], for columns [begin, end). Parameters: partial, result, rows,
// columns.
template <typename Partial, typename Result>
OPSMITH_INLINE void combine(int64_t begin, int64_t end, const int64_t* parameters) {
  const Partial* partial = pointer<const Partial>(parameters[0]);
  Result* result = pointer<Result>(parameters[1]);
  const int64_t rows = parameters[2], columns = parameters[3];
  for (int64_t x = begin; x < end; x += LANES) {
    const int width = int(end - x < LANES ? end - x : LANES);
    double sums[LANES] = {};
    if (columns == 1) {  // rows side by side: a chain of additions would wait for each
      for (int64_t r = 0; r < rows; ++r) sums[r % LANES] += partial[r];
      sums[0] = total_of(sums);
    } else if (width == LANES) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int lane = 0; lane < LANES; ++lane) sums[lane] += partial[r * columns + x + lane];
      }
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        for (int lane = 0; lane < width; ++lane) sums[lane] += partial[r * columns + x + lane];
      }
    }
    Vec<Partial> value = {};
    for (int lane = 0; lane < width; ++lane) value[lane] = Partial(sums[lane]);
    scatter(result + x, width, [](int lane) { return lane; }, value);
  }
}

}  // namespace opsmith
