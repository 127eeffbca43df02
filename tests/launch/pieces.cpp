// The parts of the launch planner one by one, for the tests: they are not exported from what opsmith ships.
#include "plan.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace opsmith;

EXPORT int64_t with_multiplier_of(int64_t size) { return with_multiplier(size); }

EXPORT int64_t pack_width_of(int64_t itemsize) { return pack_width(itemsize); }

EXPORT int64_t column_block_of(int64_t width, int64_t height, int64_t vector, int64_t chunks) {
  return column_block({1, width, height}, vector, chunks);
}

// (chunks, extent, tiles, blocks) of sums.
EXPORT void chunks_of(
    const Target* target, bool by_column, int64_t columns, int64_t kept, int64_t length, int64_t vector, int64_t* out) {
  const Chunks chunks = by_column ? column_chunks(*target, columns, kept, length, vector)
                                  : segment_chunks(*target, length, kept, vector);
  out[0] = chunks.count;
  out[1] = chunks.extent;
  out[2] = chunks.tiles;
  out[3] = 0;
  if (target->is_gpu) {
    out[3] = by_column ? column_blocks(kept, chunks) : segment_blocks(target->tuning, kept, chunks);
  }
}

EXPORT int64_t stream_blocks_of(const Target* target, int64_t count, const int64_t* tiles) {
  return stream_blocks(*target, count, {tiles[0], tiles[1], tiles[2], tiles[3]});
}

// The loops over tensors of `count` dimensions, expanded, in their natural order. Writes the number of loops, their sizes,
// each operand's strides, each operand's mode.
EXPORT void loops_of(const int64_t* shape, int count, const int64_t* strides, int operands, int64_t* out) {
  int64_t expanded[kMaxOperands][kMaxDimensions];
  for (int k = 0; k < operands; ++k) std::copy(strides + k * count, strides + (k + 1) * count, expanded[k]);
  Loops loops;
  merge({shape, count}, natural_order(count), expanded, operands, loops);
  *out++ = loops.sizes.count;
  for (int d = 0; d < loops.sizes.count; ++d) *out++ = loops.sizes.at[d];
  for (int k = 0; k < operands; ++k) {
    for (int d = 0; d < loops.sizes.count; ++d) *out++ = loops.strides[k][d];
  }
  for (int k = 0; k < operands; ++k) *out++ = indexed_mode(loops, k);
}

// Which of these sums share the first pass: the dimensions it keeps, as bits, and the role of each.
EXPORT int64_t group_of(int dimensions, const int64_t* strides, int sums, int64_t* roles) {
  Loops loops;
  for (int d = 0; d < dimensions; ++d) loops.sizes.push(2);
  int waiting[kMaxOperands];
  for (int k = 0; k < sums; ++k) {
    std::copy(strides + k * dimensions, strides + (k + 1) * dimensions, loops.strides[k]);
    waiting[k] = k;
  }
  const Grouping grouping = group(loops, waiting, sums);
  for (int k = 0; k < sums; ++k) roles[k] = grouping.roles[k];
  return grouping.kept;
}

// The team for rows of so many packs, of which a thread has so many bytes in registers.
EXPORT void row_team_of(const Target* target, int64_t packs, int64_t rows, int64_t bytes, bool sums, int64_t* out) {
  const RowTeam team = row_team(*target, packs, rows, bytes, sums);
  for (const int64_t each : {team.held, team.threads, team.cluster, team.lanes, held_before(team.held)}) *out++ = each;
}
