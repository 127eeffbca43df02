// What the planner hands out: launches, the kernels that they are of, and the combinations of partial sums after them.
#pragma once

#include <cstddef>

#include "loops.h"
#include "program.h"

namespace opsmith {

enum Path : uint8_t { kStream = 0, kSegment = 1, kColumn = 2, kRow = 3 };

// The layouts that one compiled kernel handles: planner/__init__.py's LayoutClass. Compared as
// bytes.
struct LayoutClass {
  Path path = kStream;
  uint8_t outer = 0;   // kept dimensions, except the columns
  uint8_t inner = 0;   // the other dimensions
  uint8_t vector = 1;  // elements of a pack
  uint8_t wide = 1;    // 64-bit indices
  uint8_t index = 0;   // of the GPU: kernels are loaded on each
  // Of rows on a GPU: packs that a thread holds; blocks of a cluster, 0 for lanes of a warp; the most warps of a block;
  // with sums over rows, the blocks of a multiprocessor, and whether the next row is loaded while one is computed.
  uint8_t held = 0, cluster = 0, warps = 0, resident = 0, ahead = 0;
  uint8_t modes[kMaxOperands];
};
constexpr int kLayoutHead = 11;
static_assert(offsetof(LayoutClass, modes) == kLayoutHead);

// A launch that adds up partial sums, for `jobs` results of one dtype. Parameters, four per job: the addresses of the
// partial sums and of the result, rows, columns.
struct Combine {
  int64_t dtype;
  int64_t jobs;
  int64_t tasks;   // of a CPU's loop
  int64_t blocks;  // of a GPU's grid: blocks x jobs
  int64_t* parameters;
};

// A launch. All members are eight bytes: planner/__init__.py has the same structure.
struct Pass {
  uint8_t* layout;  // a LayoutClass
  int64_t layout_size;
  int64_t* parameters;
  int64_t parameter_count;
  int64_t tasks;  // of a CPU's loop
  int64_t grain;
  int64_t blocks;  // of a GPU's grid; 0 without sums: see stream_blocks
  int64_t threads;
  int64_t scratch_bytes;
  Combine* combines;
  int64_t combine_count;
};

constexpr int kMaxParameters = kMaxOperands + kMaxScalars + 6 + kMaxDimensions + kMaxOperands * (kMaxDimensions + 1);

}  // namespace opsmith
