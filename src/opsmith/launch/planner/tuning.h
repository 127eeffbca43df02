// How work is divided among threads: chunks of sums, tiles of columns, blocks of a grid.
#pragma once

#include <algorithm>
#include <cstdint>

namespace opsmith {

// The constants of generate/tuning.py, in its order; their reasons are there.
struct Tuning {
  int64_t cpu_grain;  // elements worth another thread
  int64_t cpu_tasks;  // the most that a reduction is divided into
  int64_t cpu_tile;   // columns of one task
  int64_t stream_threads;
  int64_t segment_threads;
  int64_t column_threads;
  int64_t combine_threads;
  int64_t resident;  // threads of a reduction on a multiprocessor
  int64_t tile_packs;
  int64_t narrowest;
  int64_t least_packs;
  int64_t most_packs;
  int64_t few_items;
  int64_t very_few;  // elements per multiprocessor, at most
  int64_t few;
  int64_t some;
  int64_t few_in_columns;
  int64_t row_threads;
  int64_t row_lane_packs;
  int64_t row_bytes;
  int64_t row_most_bytes;
  int64_t row_most_warps;
  int64_t row_few_threads;
  int64_t row_registers;
  int64_t row_ahead;
};

// Where a kernel runs.
struct Target {
  int64_t is_gpu;
  int64_t multiprocessors;
  int64_t cluster;  // the most blocks of a cluster, 1 without clusters
  int64_t index;    // of the GPU
  Tuning tuning;
};

inline int64_t divide_up(int64_t count, int64_t by) { return (count + by - 1) / by; }
inline int64_t at_least_one(int64_t count) { return std::max<int64_t>(1, count); }

// The chunks of one sum. `extent` is the length of a chunk on a CPU; on a GPU the threads that share a segment's chunk,
// or the arrangement of a block's threads. `tiles` are the parts of the columns, 1 for a segment.
struct Chunks {
  int64_t count;
  int64_t extent;
  int64_t tiles = 1;
};

// --- CPU -------------------------------------------------------------------------------------------------------------

inline int64_t piece(int64_t count, int64_t pieces, int64_t multiple) {
  return at_least_one(divide_up(divide_up(count, pieces), multiple) * multiple);
}

inline Chunks cpu_segment_chunks(const Tuning& tuning, int64_t length, int64_t kept) {
  const int64_t chunks = at_least_one(std::min(tuning.cpu_tasks / at_least_one(kept), length / tuning.cpu_grain));
  const int64_t chunk_length = piece(length, chunks, 64);
  return {at_least_one(divide_up(length, chunk_length)), chunk_length};
}

inline Chunks cpu_column_chunks(const Tuning& tuning, int64_t columns, int64_t kept, int64_t rows) {
  const int64_t tiles = at_least_one(divide_up(columns, tuning.cpu_tile));
  const int64_t by_work = rows * std::min(columns, tuning.cpu_tile) / tuning.cpu_grain;
  const int64_t chunks = at_least_one(std::min(tuning.cpu_tasks / at_least_one(kept * tiles), by_work));
  const int64_t rows_per_chunk = piece(rows, chunks, 16);
  return {at_least_one(divide_up(rows, rows_per_chunk)), rows_per_chunk, tiles};
}

// The rows of one task. With sums over rows, a task has sums of its own: there are fewer of them.
inline Chunks cpu_row_chunks(const Tuning& tuning, int64_t length, int64_t rows, bool sums) {
  if (!sums) return {rows, 1};
  constexpr int64_t least_rows = 8;
  const int64_t by_work = length * rows / (8 * tuning.cpu_grain);
  const int64_t chunks = at_least_one(std::min({tuning.cpu_tasks, rows / least_rows, by_work}));
  const int64_t extent = divide_up(rows, chunks);
  return {divide_up(rows, extent), extent};
}

// --- GPU -------------------------------------------------------------------------------------------------------------

// Elements of a pack: 16 bytes of the narrowest operand that is moved in packs, at most 8.
inline int64_t pack_width(int64_t least_itemsize) {
  return at_least_one(std::min<int64_t>(8, 16 / least_itemsize));
}

// The chunks of each of `independent` sums: as many as fit on the GPU at once, because starting blocks costs time; or
// four times as many, for a better balance, if that would leave more than a sixteenth of the GPU idle.
inline int64_t chunks_of_each(const Target& target, int64_t threads, int64_t independent) {
  const int64_t blocks = target.tuning.resident / threads * target.multiprocessors;
  const int64_t at_once = blocks / independent;
  return 16 * at_once * independent >= 15 * blocks ? at_once : divide_up(4 * blocks, independent);
}

// Threads that share one of `items` chunks of `packs` packs.
inline int64_t segment_group(const Tuning& tuning, int64_t packs, int64_t items) {
  if (packs > 256 || (packs > 32 && items <= tuning.few_items)) return tuning.segment_threads;
  int64_t group = 1;
  while (group < 32 && group < packs) group *= 2;
  return group;
}

inline Chunks segment_chunks(const Target& target, int64_t length, int64_t kept, int64_t vector) {
  if (!target.is_gpu) return cpu_segment_chunks(target.tuning, length, kept);
  const Tuning& tuning = target.tuning;
  const int64_t most = chunks_of_each(target, tuning.segment_threads, kept);
  const int64_t least_elements = tuning.segment_threads * tuning.least_packs * vector;
  const int64_t chunks = at_least_one(std::min(most, divide_up(length, least_elements)));
  return {chunks, segment_group(tuning, divide_up(length, chunks * vector), kept * chunks)};
}

struct ColumnTiles {
  int64_t tiles, width, height;  // blocks across the columns; a block's threads, across and down
};

inline ColumnTiles column_tiles(const Tuning& tuning, int64_t columns, int64_t vector, int64_t tile) {
  const int64_t packs = columns / vector;
  const int64_t tiles = divide_up(packs, tile);
  const int64_t width = divide_up(packs, tiles);
  return {tiles, width, tuning.column_threads / width};
}

// The packs of a tile. Few rows are not divided into chunks; the columns are divided into narrower tiles instead, so
// that there is nothing to combine.
inline int64_t column_tile(const Target& target, int64_t columns, int64_t kept, int64_t rows, int64_t vector) {
  const Tuning& tuning = target.tuning;
  const int64_t tile = std::max(tuning.narrowest, divide_up(tuning.column_threads, at_least_one(rows)));
  const int64_t height = column_tiles(tuning, columns, vector, tuning.tile_packs).height;
  const ColumnTiles narrow = column_tiles(tuning, columns, vector, tile);
  const bool few = narrow.tiles * kept <= 2 * target.multiprocessors && rows <= tuning.most_packs * narrow.height;
  return few && tile < tuning.tile_packs && rows > height * tuning.least_packs ? tile : tuning.tile_packs;
}

// The arrangement of a block's threads, computed here so that the kernel need not: cuda.h's ColumnBlock. A block has
// fewer than 2^15 / width threads, so rounding 1 / width up does not matter.
inline int64_t column_block(const ColumnTiles& across, int64_t vector, int64_t chunks, bool pairs = false) {
  const int64_t inverse = divide_up(1 << 15, across.width);
  const int64_t terms = std::max<int64_t>(4, vector);
  int64_t share = 0;
  while (share < 5 && terms << (share + 1) <= across.height) ++share;
  return across.width | across.height << 16 | inverse << 32 | share << 48 | int64_t(pairs) << 56 |
         int64_t(chunks == 1) << 57;
}

inline Chunks column_chunks(const Target& target, int64_t columns, int64_t kept, int64_t rows, int64_t vector) {
  if (!target.is_gpu) return cpu_column_chunks(target.tuning, columns, kept, rows);
  const Tuning& tuning = target.tuning;
  const bool very_few = columns * rows <= tuning.few_in_columns * target.multiprocessors;
  if (kept == 1 && rows <= tuning.column_threads && very_few) {  // One thread per pair, one block per column.
    const int64_t pair = std::min<int64_t>(2, vector);
    ColumnTiles across = column_tiles(tuning, columns, pair, tuning.column_threads / std::max(pair, rows));
    across.height = rows;
    return {1, column_block(across, pair, 1, true), across.tiles};
  }
  const int64_t tile = column_tile(target, columns, kept, rows, vector);
  const ColumnTiles across = column_tiles(tuning, columns, vector, tile);
  int64_t chunks = 1;
  if (tile == tuning.tile_packs) {
    const int64_t most = chunks_of_each(target, tuning.column_threads, across.tiles * kept);
    chunks = at_least_one(std::min(most, divide_up(rows, across.height * tuning.least_packs)));
  }
  return {chunks, column_block(across, vector, chunks), across.tiles};
}

inline int64_t segment_blocks(const Tuning& tuning, int64_t kept, const Chunks& chunks) {
  return at_least_one(divide_up(kept * chunks.count, tuning.segment_threads / chunks.extent));
}

inline int64_t column_blocks(int64_t kept, const Chunks& chunks) {
  return at_least_one(chunks.tiles * kept * chunks.count);
}

// The threads that share a row: `lanes` of a warp, or the blocks of a cluster. Each holds `held` packs of the row, or the
// row is too long to be held (0).
struct RowTeam {
  int64_t held, threads, cluster, lanes;
  // Of teams with sums over rows, which have several rows each: whether the next row is loaded while one is computed.
  bool ahead = false;
  int64_t resident = 0;  // blocks that a multiprocessor must be able to run at once

  // The most warps of a block that the kernel is compiled for.
  int64_t warps() const { return threads <= 128 ? 4 : threads <= 256 ? 8 : threads <= 512 ? 16 : 32; }
  int64_t teams_of_block() const { return cluster == 0 ? threads / lanes : 1; }
};

// The least of the numbers that kernels are compiled for, 1, 2, 3, 4, 6, 8, 12 and so on.
inline int64_t held_packs(int64_t least) {
  int64_t step = 1;
  while (true) {
    if (least <= 2 * step) return least <= step ? step : 2 * step;
    if (least <= 3 * step) return 3 * step;
    step *= 2;
  }
}

// The number before one of these; 0 before 1. rows/cuda.h relies on it: of `held` packs, a thread uses more than these.
inline int64_t held_before(int64_t held) {
  return held <= 4 ? held - 1 : (held & (held - 1)) == 0 ? held / 4 * 3 : held / 3 * 2;
}

// The largest of these numbers that is not larger.
inline int64_t held_at_most(int64_t most) {
  int64_t found = 1;
  for (int64_t next = 1; next <= most; next = held_packs(found + 1)) found = next;
  return found;
}

// A team of so many blocks whose threads each hold at most `most` packs: as many as possible, unless a sixteenth more of
// what they could hold would be empty than with fewer. Without threads if there is none.
inline RowTeam held_team(const Tuning& tuning, int64_t packs, int64_t cluster, int64_t most) {
  RowTeam team{0, 0, cluster, 0};
  for (int64_t held = held_at_most(most); held > 0; held = held_before(held)) {
    const int64_t warps = divide_up(packs, 32 * cluster * held), threads = 32 * warps;
    if (warps > tuning.row_most_warps) break;
    if (held_before(held) * threads * cluster >= packs) continue;
    if (team.threads == 0 || 17 * held * threads <= 16 * team.held * team.threads) {
      team.held = held;
      team.threads = threads;
    }
  }
  return team;
}

// The team for `rows` rows of this many packs; `bytes`: what a thread has in registers of a pack; `sums`: whether it adds up
// values over rows. Then a thread has as much as it can of a row, because every thread takes part in all reductions.
inline RowTeam row_team(const Target& target, int64_t packs, int64_t rows, int64_t bytes, bool sums) {
  const Tuning& tuning = target.tuning;
  const auto most = [&](int64_t of) { return held_at_most(of / bytes); };
  const bool few = rows <= tuning.row_few_threads * target.multiprocessors / packs;
  if (packs <= 32 * (few ? 1 : std::min(tuning.row_lane_packs, most(tuning.row_most_bytes)))) {
    const int64_t held = held_packs(divide_up(packs, 32));
    int64_t lanes = 1;
    while (lanes * held < packs) lanes *= 2;
    return {held, tuning.row_threads, 0, lanes};
  }
  if (few) {  // As many threads as possible: the GPU is not full, and one waits for the elements of each.
    for (int64_t held = 1; held <= most(tuning.row_bytes); held = held_packs(held + 1)) {
      for (int64_t cluster = 1; cluster <= target.cluster; cluster *= 2) {
        if (const RowTeam team = held_team(tuning, packs, cluster, held); team.threads > 0) return team;
      }
    }
  }
  // More threads, then more registers, then more blocks.
  for (int64_t cluster = 1; cluster <= target.cluster; cluster *= 2) {
    const auto limits = {sums ? 2 * tuning.row_bytes : tuning.row_bytes, tuning.row_most_bytes};
    for (const int64_t limit : limits) {
      if (const RowTeam team = held_team(tuning, packs, cluster, most(limit)); team.threads > 0) return team;
    }
  }
  const RowTeam last = held_team(tuning, packs, target.cluster, most(2 * tuning.row_bytes));
  if (last.threads > 0) return last;
  return {0, 32 * tuning.row_most_warps, 1, 0};
}

// The blocks of a multiprocessor. `inputs`: bytes of a pack that a thread loads; `bytes`: what it has in registers of one.
inline void find_residence(const Tuning& tuning, int64_t inputs, int64_t bytes, bool sums, RowTeam& team) {
  constexpr int64_t kRegisters = 65536, kThreads = 1536;  // of a multiprocessor; of the smallest one
  constexpr int64_t kMost = 128;                          // registers of a thread of the largest block
  const auto registers = [&](bool ahead) { return tuning.row_registers + team.held * (bytes + ahead * inputs) / 4; };
  team.ahead = sums && tuning.row_ahead != 0 && team.held > 0 && registers(true) <= kMost;
  team.resident = at_least_one(std::min(kThreads, kRegisters / registers(team.ahead)) / (32 * team.warps()));
}

// Elements that a block of a kernel without sums computes if there are very few, few, some or many in total. They
// depend on the kernel's source, so generate/tuning.py computes them.
struct Tiles {
  int64_t very_few = 1, few = 1, some = 1, many = 1;
};

inline int64_t stream_blocks(const Target& target, int64_t count, const Tiles& tiles) {
  const Tuning& tuning = target.tuning;
  const int64_t tile = count <= tuning.very_few * target.multiprocessors ? tiles.very_few
                       : count <= tuning.few * target.multiprocessors    ? tiles.few
                       : count <= tuning.some * target.multiprocessors   ? tiles.some
                                                                         : tiles.many;
  return at_least_one(divide_up(count, tile));
}

inline int64_t combine_blocks(int64_t columns) { return at_least_one(divide_up(columns, 32)); }

}  // namespace opsmith
