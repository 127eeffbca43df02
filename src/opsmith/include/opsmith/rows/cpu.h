// Drivers of row kernels on the CPU: the loop over rows, and what a pass over a row's elements needs.
//
// A kernel K is a struct with
//   INNER, OUTER    the numbers of dimensions along the row, and of the others
//   STRIDED         how many operands have strides
//   COLUMNS, SEGMENTS, TOTALS   how many results are added up over rows: columns, segments of columns, everything
//   BUFFERS         how many elements are carried from one pass to a later one
//   loops           the launch parameters after pointers and scalars: see `rows`
//   operator()      computes a row: its passes are structs like kernels of pointwise/cpu.h, run one after the other
// What a task computes, and in which order it adds, depends on sizes alone.
#pragma once

#include "../pointwise/cpu.h"

namespace opsmith {

extern "C" void* malloc(__SIZE_TYPE__ bytes);
extern "C" void free(void* memory);

// ---- Reductions. Float sums use pointwise/cpu.h's add: the vectors of a block in their own type, blocks in double.
// The others, which are exact, have one accumulator.

template <int K, bool OVERLAPS, typename V>
OPSMITH_INLINE V accepted(const Row<K, OVERLAPS>& at, V before, V after) {
  if constexpr (OVERLAPS) return select(Mask{lane_numbers() >= at.stale}, after, before);
  return after;
}
template <int K, typename V>
OPSMITH_INLINE V accepted(const Scattered<K>& at, V before, V after) {
  return select(Mask{lane_numbers() < at.count}, after, before);
}

template <typename Place, typename V>
OPSMITH_INLINE void add_exactly(const Place& at, V& sum, V value) {
  sum = accepted(at, sum, sum + value);
}
template <typename Place>
OPSMITH_INLINE void add_exactly(const Place& at, Mask& sum, Mask value) {
  sum = accepted(at, sum, sum | value);
}
template <typename Place, typename V>
OPSMITH_INLINE void raise_to(const Place& at, V& most, V value) {
  most = accepted(at, most, maximum(most, value));
}
template <typename Place, typename V>
OPSMITH_INLINE void lower_to(const Place& at, V& least, V value) {
  least = accepted(at, least, minimum(least, value));
}

template <int BY, typename V>
OPSMITH_INLINE V rotated(V lanes) {
#ifdef __clang__
  V result;
  for (int lane = 0; lane < LANES; ++lane) result[lane] = lanes[(lane + BY) % LANES];
  return result;
#else
  Bits<V> from;
  for (int lane = 0; lane < LANES; ++lane) from[lane] = (lane + BY) % LANES;
  return __builtin_shuffle(lanes, from);
#endif
}

// Reduces all lanes, by halves.
template <int HALF = LANES / 2, typename V, typename F>
OPSMITH_INLINE Element<V> folded(V lanes, F f) {
  if constexpr (HALF == 0) {
    return lanes[0];
  } else {
    return folded<HALF / 2>(f(lanes, rotated<HALF>(lanes)), f);
  }
}
template <typename V>
OPSMITH_INLINE Element<V> sum_of_lanes(V lanes) {
  return folded(lanes, [](V a, V b) { return a + b; });
}
OPSMITH_INLINE bool sum_of_lanes(Mask lanes) { return any(lanes); }
template <typename V>
OPSMITH_INLINE Element<V> most_of_lanes(V lanes) {
  return folded(lanes, [](V a, V b) { return maximum(a, b); });
}
OPSMITH_INLINE bool most_of_lanes(Mask lanes) { return any(lanes); }
template <typename V>
OPSMITH_INLINE Element<V> least_of_lanes(V lanes) {
  return folded(lanes, [](V a, V b) { return minimum(a, b); });
}
OPSMITH_INLINE bool least_of_lanes(Mask lanes) { return !any(~lanes); }

template <typename T>
constexpr T lowest() {
  if constexpr (is_float<T>) {
    return -infinity<T>();
  } else {
    return T(T(1) << (sizeof(T) * 8 - 1)) < T(0) ? T(T(1) << (sizeof(T) * 8 - 1)) : T(0);
  }
}
template <typename T>
constexpr T highest() {
  if constexpr (is_float<T>) {
    return infinity<T>();
  } else {
    return T(~lowest<T>());
  }
}

// ---- Numbers of elements in their row.

template <typename Place>
OPSMITH_INLINE Vec<int64_t> numbers(const Place& at) {
  return __builtin_convertvector(lane_numbers(), Vec<int64_t>) + at.index;
}

// An index relative to a place, clamped to just outside its lanes.
template <typename Place>
OPSMITH_INLINE Vec<int32_t> relative(const Place& at, int64_t index) {
  const int64_t lane = index - at.index;
  return broadcast(int32_t(lane < -1 ? -1 : lane > LANES ? LANES : lane));
}
// Comparisons of the elements' numbers with an index.
#define OPSMITH_COMPARE_NUMBERS(name)                                       \
  template <typename Place>                                                 \
  OPSMITH_INLINE Mask numbers_##name(const Place& at, int64_t index) {      \
    return name(lane_numbers(), relative(at, index));                       \
  }
OPSMITH_COMPARE_NUMBERS(less)
OPSMITH_COMPARE_NUMBERS(less_equal)
OPSMITH_COMPARE_NUMBERS(greater)
OPSMITH_COMPARE_NUMBERS(greater_equal)
OPSMITH_COMPARE_NUMBERS(equal)
OPSMITH_COMPARE_NUMBERS(not_equal)
#undef OPSMITH_COMPARE_NUMBERS

// Element `index` of a row whose first is at `row`, if there is such an element.
template <typename T>
OPSMITH_INLINE auto element_at(const T* row, int64_t index, int64_t stride, int64_t length) {
  const Held<T> value = load_one(row + (index >= 0 && index < length ? index * stride : 0));
  if constexpr (is_vector<Held<T>>) {
    return value[0];
  } else {
    return any(value);
  }
}

// Rare places are compiled once, out of line.
template <typename P, typename Place>
__attribute__((noinline)) typename P::Sums pass_apart(P pass, const Place& at, typename P::Sums sums) {
  pass(at, sums);
  return sums;
}

// ---- Memory of a task: elements carried between passes, and sums over rows.

// Neighbouring elements of a row, carried from one pass to a later one.
template <int K, bool O, typename T>
OPSMITH_INLINE void carry(const Row<K, O>& at, T* buffer, Vec<T> value) {
  store(buffer + at.index, value);
}
template <int K, typename T>
OPSMITH_INLINE void carry(const Scattered<K>& at, T* buffer, Vec<T> value) {
  scatter(buffer + at.index, at.count, [](int lane) { return lane; }, value);
}
template <int K, bool O, typename T>
OPSMITH_INLINE Vec<T> carried(const Row<K, O>& at, const T* buffer) {
  return load(buffer + at.index);
}
template <int K, typename T>
OPSMITH_INLINE Vec<T> carried(const Scattered<K>& at, const T* buffer) {
  return gather(buffer + at.index, at.count, [](int lane) { return lane; });
}

// The sums of a task's rows, one for each column: a block of rows in the type of the sum, blocks in double.
template <typename T>
struct ColumnSums {
  static constexpr int ROWS = 16;
  T* block = nullptr;
  double* total = nullptr;
  int64_t count = 0;

  OPSMITH_INLINE void begin(void* memory, int64_t columns, int64_t) {
    total = static_cast<double*>(memory);
    block = reinterpret_cast<T*>(total + columns);
    count = columns;
    __builtin_memset(memory, 0, bytes(columns, 1));
  }
  static int64_t bytes(int64_t columns, int64_t) { return (columns * int64_t(sizeof(double) + sizeof(T)) + 7) / 8 * 8; }

  void end_block() const {
    for (int64_t x = 0; x < count; ++x) total[x] += block[x];
    __builtin_memset(block, 0, count * sizeof(T));
  }
  void end(T* partial) const {
    end_block();
    for (int64_t x = 0; x < count; ++x) partial[x] = T(total[x]);
  }
};
template <int K, bool OVERLAPS, typename T>
OPSMITH_INLINE void add_to_column(const Row<K, OVERLAPS>& at, const ColumnSums<T>& sums, Vec<T> value) {
  Vec<T> sum = load(sums.block + at.index);
  add(at, sum, value);
  store(sums.block + at.index, sum);
}
template <int K, typename T>
OPSMITH_INLINE void add_to_column(const Scattered<K>& at, const ColumnSums<T>& sums, Vec<T> value) {
  for (int lane = 0; lane < at.count; ++lane) sums.block[at.index + lane] += value[lane];
}

// The sums of a task's rows, one for each segment: runs of `segment` neighbouring elements of a row. Vectors of one
// segment are added up in the type of the sum, blocks of them in double.
template <typename T>
struct SegmentSums {
  static constexpr int VECTORS = 64;
  struct State {
    T lanes[LANES];
    int64_t first, number, room;
  };
  State* state = nullptr;
  double* total = nullptr;
  int64_t segment = 1, count = 0;

  OPSMITH_INLINE void begin(void* memory, int64_t length, int64_t segment_length) {
    total = static_cast<double*>(memory);
    segment = segment_length;
    count = length / segment;
    state = reinterpret_cast<State*>(total + count);
    __builtin_memset(memory, 0, bytes(length, segment));
  }
  static int64_t bytes(int64_t length, int64_t segment) {
    return length / segment * int64_t(sizeof(double)) + int64_t(sizeof(State) + 7) / 8 * 8;
  }

  OPSMITH_INLINE void flush() const {
    double sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += double(state->lanes[lane]);
    total[state->number] += sum;
    __builtin_memset(state->lanes, 0, sizeof state->lanes);
    state->room = VECTORS;
  }
  // Makes the segment of an element the current one.
  OPSMITH_INLINE void enter(int64_t index) const {
    if (index >= state->first && index < state->first + segment && state->room > 0) return;
    flush();
    state->number = index / segment;
    state->first = state->number * segment;
  }
  void end(T* partial) const {
    flush();
    for (int64_t s = 0; s < count; ++s) partial[s] = T(total[s]);
  }
};
// All elements of a vector are of one segment: a run of neighbours is never longer than one.
template <int K, bool OVERLAPS, typename T>
OPSMITH_INLINE void add_to_segment(const Row<K, OVERLAPS>& at, const SegmentSums<T>& sums, Vec<T> value) {
  sums.enter(at.index + (OVERLAPS ? at.stale : 0));
  Vec<T> sum = load(sums.state->lanes);
  add(at, sum, value);
  store(sums.state->lanes, sum);
  --sums.state->room;
}
template <int K, typename T>
OPSMITH_INLINE void add_to_segment(const Scattered<K>& at, const SegmentSums<T>& sums, Vec<T> value) {
  for (int lane = 0; lane < at.count; ++lane) {
    sums.enter(at.index + lane);
    sums.state->lanes[0] += value[lane];
    --sums.state->room;
  }
}

// ---- The driver.

// Parameters: length, rows, rows of a task, the address of a flag to set if an argument is refused, rows of a group,
// elements of a segment, kept sizes[OUTER], row sizes[INNER]; for each strided operand kept strides[OUTER], row
// strides[INNER].
template <typename K>
struct RowLoops {
  static constexpr int PITCH = K::OUTER + K::INNER;
  int64_t length, rows, rows_of_task, rows_of_group, segment;
  const int64_t *sizes, *strides;

  explicit RowLoops(const int64_t* parameters)
      : length(parameters[0]),
        rows(parameters[1]),
        rows_of_task(parameters[2]),
        rows_of_group(parameters[4]),
        segment(parameters[5]),
        sizes(parameters + 6),
        strides(sizes + PITCH) {}

  using Kept = Cursor<K::STRIDED, K::OUTER, PITCH>;
  using Along = Cursor<K::STRIDED, K::INNER, PITCH>;

  OPSMITH_INLINE Kept kept(int64_t row) const {
    Kept cursor(sizes, strides);
    cursor.locate(row);
    return cursor;
  }
  // The first element of a row.
  OPSMITH_INLINE Along along(const int64_t* offset) const {
    Along cursor(sizes + K::OUTER, strides + K::OUTER);
    for (int k = 0; k < K::STRIDED; ++k) cursor.offset[k] = offset[k];
    return cursor;
  }
};

// ---- A pass over a row.

// The reductions of a pass: float sums are in `sums` until a block is full, then in `total`.
template <typename P>
struct PassSums {
  typename P::Sums sums{};
  bool blocks = false;
  double total[P::SUMS][LANES];

  OPSMITH_INLINE void end_block(const P& pass) {
    if (!blocks) __builtin_memset(total, 0, sizeof total);
    blocks = true;
    pass.each_sum(sums, [&](int number, auto& sum, auto*, auto) { flush(sum, total[number]); });
  }
  OPSMITH_INLINE void end(const P& pass) {
    if (blocks) end_block(pass);
  }
  // The sum with this number, which is in `lanes` if no block was full.
  template <typename V>
  OPSMITH_INLINE Element<V> sum(int number, V lanes) const {
    return blocks ? Element<V>(total_of(total[number])) : sum_of_lanes(lanes);
  }
};

// A run of at least a vector of neighbours, from element `index` of the row on. `room`: vectors left of a block.
template <typename K, typename P>
OPSMITH_INLINE void pass_along(
    const RowLoops<K>& loops, int64_t index, int64_t length, const int64_t* offset, const P& pass, PassSums<P>& task,
    int64_t& room) {
  Row<K::STRIDED, false> at = {};
  at.index = index;
  for (int k = 0; k < K::STRIDED; ++k) {
    at.offset[k] = offset[k];
    at.stride[k] = loops.strides[k * RowLoops<K>::PITCH + K::OUTER];
  }
  int64_t left = length / LANES;
  while (true) {
    const int64_t vectors = left < room ? left : room;
    for (int64_t vector = 0; vector < vectors; ++vector) {
      pass(at, task.sums);
      at.index += LANES;
      at.position += LANES;
    }
    left -= vectors;
    room -= vectors;
    if (left == 0) break;
    task.end_block(pass);
    room = BLOCK;
  }
  const int rest = int(length % LANES);
  if (rest == 0) return;
  Row<K::STRIDED, true> last = {index + length - LANES, length - LANES, {}, {}, LANES - rest};
  for (int k = 0; k < K::STRIDED; ++k) {
    last.offset[k] = at.offset[k];
    last.stride[k] = at.stride[k];
  }
  pass(last, task.sums);
}

template <typename K, typename P>
OPSMITH_INLINE void pass_over(const RowLoops<K>& loops, const int64_t* offset, const P& pass, PassSums<P>& task) {
  const int64_t run = loops.sizes[K::OUTER];  // of neighbours
  if (run >= LANES) {
    int64_t room = BLOCK;
    if constexpr (K::INNER == 1) {
      pass_along(loops, 0, loops.length, offset, pass, task, room);
    } else {
      auto cursor = loops.along(offset);
      for (int64_t index = 0; index < loops.length; index += run) {
        pass_along(loops, index, run, cursor.offset, pass, task, room);
        cursor.advance(run);
      }
    }
  } else {
    auto cursor = loops.along(offset);
    int64_t room = BLOCK;
    for (int64_t begin = 0; begin < loops.length;) {
      // A vector takes elements from as many runs of neighbours as it needs.
      Scattered<K::STRIDED> at;
      at.index = begin;
      at.count = int(loops.length - begin < LANES ? loops.length - begin : LANES);
      for (int lane = 0; lane < at.count; ++lane) {
        for (int k = 0; k < K::STRIDED; ++k) at.offset[k][lane] = cursor.offset[k];
        cursor.advance(1);
      }
      task.sums = pass_apart(pass, at, task.sums);
      begin += at.count;
      if (--room == 0) {
        task.end_block(pass);
        room = BLOCK;
      }
    }
  }
  task.end(pass);
}

inline void refuse(const int64_t* parameters) {
  __atomic_store_n(pointer<int64_t>(parameters[3]), 1, __ATOMIC_RELAXED);
}

// Rows [begin, end) of tasks. With sums over rows, each task has its own, over rows of one group: task t has the t /
// groups-th part of group t % groups.
template <typename K>
OPSMITH_INLINE void rows(int64_t begin, int64_t end, K& kernel) {
  const RowLoops<K> loops(kernel.loops);
  char* memory = nullptr;
  if (K::BUFFERS + K::COLUMNS + K::SEGMENTS > 0) {
    memory = static_cast<char*>(malloc(kernel.bytes(loops.length, loops.segment)));
    if (memory == nullptr) return refuse(kernel.loops);
  }
  const auto run_rows = [&](int64_t first, int64_t last) {
    auto kept = loops.kept(first);
    for (int64_t row = first; row < last; ++row) {
      kernel(loops, kept.offset, row - first);
      kept.advance(1);
    }
  };
  if constexpr (K::COLUMNS + K::SEGMENTS + K::TOTALS == 0) {
    kernel.begin(memory, loops.length, loops.segment);
    run_rows(begin, end);
  } else {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t groups = loops.rows / loops.rows_of_group, group = task % groups * loops.rows_of_group;
      const int64_t first = task / groups * loops.rows_of_task, last = first + loops.rows_of_task;
      kernel.begin(memory, loops.length, loops.segment);
      run_rows(group + first, group + (last < loops.rows_of_group ? last : loops.rows_of_group));
      kernel.end(task);
    }
  }
  if (memory != nullptr) free(memory);
}

}  // namespace opsmith
