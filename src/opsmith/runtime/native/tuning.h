// How a launch is cut into tasks and blocks: the launcher's part of pointwise/tuning.py and pointwise/emit_cpp.py. The
// constants are theirs and told from there, so that they stand in one place.
#pragma once

#include <algorithm>
#include <cstdint>

namespace opsmith {

struct CpuTuning {
  int64_t grain = 32768;  // elements worth a thread of their own
  int64_t tasks = 256;    // that a reduction is cut into at most
  int64_t tile = 1024;    // columns of one task
};

struct CudaTuning {
  int64_t stream_threads = 128;  // of a block
  int64_t segment_threads = 128;
  int64_t column_threads = 256;
  int64_t combine_threads = 256;
  int64_t resident = 1024;  // threads of a reduction on a multiprocessor
  int64_t tile_packs = 32;
  int64_t narrowest = 2;
  int64_t least_packs = 4;
  int64_t most_packs = 8;
  int64_t few_items = 1024;
  int64_t very_few = 128;  // elements of a multiprocessor, at most
  int64_t few = 2048;
  int64_t some = 8192;
};

inline int64_t divide_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

// Elements of a block without reduction, where there are very few, few, some or many in all.
struct Tiles {
  int64_t very_few = 1, few = 1, some = 1, many = 1;
};

// Of the reduced elements of a pass. `extent` is a chunk's length on a CPU; on a GPU the threads that share a segment's
// chunk, or how the threads of a block stand. `tiles` are the pieces that columns are cut into, 1 for a segment.
struct Chunks {
  int64_t count;
  int64_t extent;
  int64_t tiles = 1;
};

inline int64_t cut(int64_t count, int64_t pieces, int64_t multiple) {
  return std::max<int64_t>(1, divide_up(divide_up(count, pieces), multiple) * multiple);
}

inline Chunks segment_chunks(const CpuTuning& tuning, int64_t length, int64_t kept) {
  const int64_t chunks =
      std::max<int64_t>(1, std::min(tuning.tasks / std::max<int64_t>(1, kept), length / tuning.grain));
  const int64_t chunk_length = cut(length, chunks, 64);
  return {std::max<int64_t>(1, divide_up(length, chunk_length)), chunk_length};
}

inline Chunks column_chunks(const CpuTuning& tuning, int64_t columns, int64_t kept, int64_t rows) {
  const int64_t tiles = std::max<int64_t>(1, divide_up(columns, tuning.tile));
  const int64_t by_work = rows * std::min(columns, tuning.tile) / tuning.grain;
  const int64_t chunks =
      std::max<int64_t>(1, std::min(tuning.tasks / std::max<int64_t>(1, kept * tiles), by_work));
  const int64_t rows_per_chunk = cut(rows, chunks, 16);
  return {std::max<int64_t>(1, divide_up(rows, rows_per_chunk)), rows_per_chunk, tiles};
}

inline int64_t vector_width(int64_t least_itemsize) {
  return std::max<int64_t>(1, std::min<int64_t>(8, 16 / least_itemsize));
}

// Into how many chunks to cut each of so many independent sums.
inline int64_t chunks_of(const CudaTuning& tuning, int64_t threads, int64_t independent, int64_t multiprocessors) {
  const int64_t blocks = tuning.resident / threads * multiprocessors;
  const int64_t at_once = blocks / independent;
  return 16 * at_once * independent >= 15 * blocks ? at_once : divide_up(4 * blocks, independent);
}

// Threads that share one of so many chunks of so many packs.
inline int64_t segment_group(const CudaTuning& tuning, int64_t packs, int64_t items) {
  if (packs > 256 || (packs > 32 && items <= tuning.few_items)) return tuning.segment_threads;
  int64_t group = 1;
  while (group < 32 && group < packs) group *= 2;
  return group;
}

inline Chunks segment_chunks(const CudaTuning& tuning, int64_t length, int64_t kept, int64_t vector,
                             int64_t multiprocessors) {
  const int64_t least = tuning.segment_threads * tuning.least_packs * vector;
  const int64_t most = chunks_of(tuning, tuning.segment_threads, kept, multiprocessors);
  const int64_t chunks = std::max<int64_t>(1, std::min(most, divide_up(length, least)));
  return {chunks, segment_group(tuning, divide_up(length, chunks * vector), kept * chunks)};
}

struct ColumnTiles {
  int64_t tiles, width, height;  // blocks across the columns; a block's threads, across and down
};

inline ColumnTiles column_tiles(const CudaTuning& tuning, int64_t columns, int64_t vector, int64_t tile) {
  const int64_t packs = columns / vector;
  const int64_t tiles = divide_up(packs, tile);
  const int64_t width = divide_up(packs, tiles);
  return {tiles, width, tuning.column_threads / width};
}

// Few rows are not cut into chunks but the columns into narrower tiles: then there is nothing to combine.
inline int64_t column_tile(const CudaTuning& tuning, int64_t columns, int64_t kept, int64_t rows, int64_t vector,
                           int64_t multiprocessors) {
  const int64_t tile =
      std::max(tuning.narrowest, divide_up(tuning.column_threads, std::max<int64_t>(1, rows)));
  const int64_t height = column_tiles(tuning, columns, vector, tuning.tile_packs).height;
  const ColumnTiles narrow = column_tiles(tuning, columns, vector, tile);
  const bool few = narrow.tiles * kept <= 2 * multiprocessors && rows <= tuning.most_packs * narrow.height;
  return few && tile < tuning.tile_packs && rows > height * tuning.least_packs ? tile : tuning.tile_packs;
}

// How the threads of a block stand, for the kernel not to work it out: cuda.h's ColumnBlock.
inline int64_t column_block(const ColumnTiles& across, int64_t vector, int64_t chunks, bool pairs = false) {
  const int64_t inverse = divide_up(1 << 15, across.width);
  const int64_t terms = std::max<int64_t>(4, vector);
  int64_t share = 0;
  while (share < 5 && terms << (share + 1) <= across.height) ++share;
  return across.width | across.height << 16 | inverse << 32 | share << 48 | int64_t(pairs) << 56 |
         int64_t(chunks == 1) << 57;
}

inline Chunks column_chunks(const CudaTuning& tuning, int64_t columns, int64_t kept, int64_t rows, int64_t vector,
                            int64_t multiprocessors) {
  if (kept == 1 && rows <= tuning.column_threads && columns * rows <= tuning.very_few * multiprocessors) {
    const int64_t pair = std::min<int64_t>(2, vector);
    ColumnTiles across = column_tiles(tuning, columns, pair, tuning.column_threads / std::max(pair, rows));
    across.height = rows;
    return {1, column_block(across, pair, 1, true), across.tiles};
  }
  const int64_t tile = column_tile(tuning, columns, kept, rows, vector, multiprocessors);
  const ColumnTiles across = column_tiles(tuning, columns, vector, tile);
  int64_t chunks = 1;
  if (tile == tuning.tile_packs) {
    const int64_t most = chunks_of(tuning, tuning.column_threads, across.tiles * kept, multiprocessors);
    chunks = std::max<int64_t>(1, std::min(most, divide_up(rows, across.height * tuning.least_packs)));
  }
  return {chunks, column_block(across, vector, chunks), across.tiles};
}

inline int64_t stream_blocks(const CudaTuning& tuning, int64_t count, const Tiles& tiles, int64_t multiprocessors) {
  const int64_t tile = count <= tuning.very_few * multiprocessors ? tiles.very_few
                       : count <= tuning.few * multiprocessors    ? tiles.few
                       : count <= tuning.some * multiprocessors   ? tiles.some
                                                                  : tiles.many;
  return std::max<int64_t>(1, divide_up(count, tile));
}

inline int64_t segment_blocks(const CudaTuning& tuning, int64_t kept, const Chunks& chunks) {
  return std::max<int64_t>(1, divide_up(kept * chunks.count, tuning.segment_threads / chunks.extent));
}

inline int64_t column_blocks(int64_t kept, const Chunks& chunks) {
  return std::max<int64_t>(1, chunks.tiles * kept * chunks.count);
}

inline int64_t combine_blocks(int64_t columns) { return std::max<int64_t>(1, divide_up(columns, 32)); }

}  // namespace opsmith
