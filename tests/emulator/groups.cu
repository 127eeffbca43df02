// Cooperative groups: each kernel writes what one operation gives to every thread.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

__global__ void places(unsigned* out) {  // [threads of the grid, 16]
  const cg::thread_block block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  const auto tile = cg::tiled_partition<4>(warp);
  const cg::thread_group part = cg::tiled_partition(block, 8);
  const cg::thread_block_tile<4> plain = tile;
  block.sync();
  warp.sync();  // the last warp has 8 threads
  tile.sync();
  part.sync();
  unsigned* mine = out + 16 * cg::this_grid().thread_rank();
  const unsigned results[16] = {
      block.thread_rank(), block.size(), block.num_threads(), block.group_index().x, block.thread_index().y,
      block.dim_threads().y, warp.thread_rank(), warp.meta_group_rank(), warp.meta_group_size(), tile.thread_rank(),
      tile.size(), tile.meta_group_rank(), tile.meta_group_size(), unsigned(part.thread_rank()),
      cg::group_size(plain), unsigned(part.size())};
  for (int i = 0; i < 16; ++i) mine[i] = results[i];
}

template <int SIZE>
__device__ void tile_operations(const float* x, float* out, int n) {
  const auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
  const int i = threadIdx.x;
  const float value = x[i];
  int same = 0;
  out[0 * n + i] = tile.shfl(value, 1 % SIZE);
  out[1 * n + i] = tile.shfl_up(value, 3);
  out[2 * n + i] = tile.shfl_down(value, 2);
  out[3 * n + i] = tile.shfl_xor(value, 5);
  out[4 * n + i] = tile.any(value > 1.0f);
  out[5 * n + i] = tile.all(value > -1.0f);
  out[6 * n + i] = tile.ballot(value > 0.0f);
  out[7 * n + i] = tile.match_any(value > 0.0f);
  out[8 * n + i] = tile.match_all(value > 0.0f, same);
  out[9 * n + i] = same;
  out[10 * n + i] = cg::reduce(tile, value, cg::plus<float>());
  out[11 * n + i] = cg::reduce(tile, value, cg::less<float>());
  out[12 * n + i] = cg::reduce(tile, value, cg::greater<float>());
  out[13 * n + i] = cg::reduce(tile, i, cg::bit_xor<int>());
  out[14 * n + i] = cg::reduce(tile, i, cg::bit_and<int>());
  out[15 * n + i] = cg::reduce(tile, i, cg::bit_or<int>());
  out[16 * n + i] = cg::reduce(tile, value, [](float a, float b) { return a * b; });
  out[17 * n + i] = cg::inclusive_scan(tile, i);
  out[18 * n + i] = cg::exclusive_scan(tile, value, cg::plus<float>());
  struct Wide {
    double a, b, c;
  };
  out[19 * n + i] = float(tile.shfl(Wide{0, 0, double(value)}, 0).c);
}

__global__ void tiles_1(const float* x, float* out, int n) { tile_operations<1>(x, out, n); }
__global__ void tiles_2(const float* x, float* out, int n) { tile_operations<2>(x, out, n); }
__global__ void tiles_4(const float* x, float* out, int n) { tile_operations<4>(x, out, n); }
__global__ void tiles_8(const float* x, float* out, int n) { tile_operations<8>(x, out, n); }
__global__ void tiles_16(const float* x, float* out, int n) { tile_operations<16>(x, out, n); }
__global__ void tiles_32(const float* x, float* out, int n) { tile_operations<32>(x, out, n); }

// The threads of a tile that say the same, with gaps between them.
__global__ void parts(const int* labels, int* out, int n) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const int i = threadIdx.x;
  const cg::coalesced_group group = cg::labeled_partition(warp, labels[i]);
  out[0 * n + i] = group.thread_rank();
  out[1 * n + i] = group.size();
  out[2 * n + i] = group.meta_group_rank();
  out[3 * n + i] = group.meta_group_size();
  out[4 * n + i] = group.shfl(i, 0);
  out[5 * n + i] = group.shfl_up(i, 1);
  out[6 * n + i] = group.shfl_down(i, 2);
  out[7 * n + i] = group.ballot(i % 3 == 0);
  out[8 * n + i] = cg::reduce(group, i, cg::plus<int>());
  out[9 * n + i] = cg::inclusive_scan(group, i);
  out[10 * n + i] = cg::tiled_partition(group, 2).size();
  const cg::coalesced_group half = cg::binary_partition(warp, labels[i] > 1);
  out[11 * n + i] = half.size();
  out[12 * n + i] = half.meta_group_rank();
  out[13 * n + i] = half.any(i == 0);
  group.sync();
}

// A sum through shared memory, whose order the barriers of groups give. The checks see a race where they do not.
__global__ void sum(const float* x, float* out) {
  __shared__ float values[128], of_warp[4];
  const cg::thread_block block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  values[block.thread_rank()] = x[block.thread_rank()];
  for (int distance = 16; distance > 0; distance /= 2) {
    warp.sync();
    if (warp.thread_rank() < distance) {
      values[block.thread_rank()] += values[block.thread_rank() + distance];
    }
  }
  if (warp.thread_rank() == 0) of_warp[warp.meta_group_rank()] = values[block.thread_rank()];
  cg::sync(block);
  if (block.thread_rank() == 0) *out = of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3];
}

// One atomic operation for all lanes that came to it.
__global__ void compact(const int* x, int* out, int* count, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] > 0) {
    const auto group = cg::coalesced_threads();
    int first = 0;
    if (group.thread_rank() == 0) first = atomicAdd(count, int(group.size()));
    out[group.shfl(first, 0) + group.thread_rank()] = x[i];
  }
}
