// Kernels whose blocks work together in clusters: sound, and exact where torch is.
// opsmith: allow-file(missing-bounds-check): launched with a thread an element
// opsmith: allow-file(int32-index): a few thousand elements

#include <cooperative_groups.h>
#include <opsmith/cluster.h>

namespace cg = cooperative_groups;

// The bins are spread over the blocks of a cluster; as many blocks as the launch says.
__global__ void cluster_histogram(const int* x, int* bins, int n, int bins_per_block) {
  extern __shared__ int own_bins[];
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) own_bins[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int* there = cluster.map_shared_rank(own_bins, x[i] / bins_per_block);
    atomicAdd(there + x[i] % bins_per_block, 1);
  }
  cluster.sync();
  int* mine = bins + cluster.block_rank() * bins_per_block;
  for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) atomicAdd(&mine[i], own_bins[i]);
}

// One row for each cluster; its first block adds what the others have put into its shared memory.
__global__ void __cluster_dims__(8, 1, 1) cluster_row_sums(const float* x, float* y, int width) {
  __shared__ float of_blocks[8];
  __shared__ float tile[128];
  cg::cluster_group cluster = cg::this_cluster();
  const float* row = x + static_cast<size_t>(blockIdx.x / 8) * width;
  float sum = 0.0f;
  for (unsigned i = cluster.thread_rank(); i < width; i += cluster.num_threads()) sum += row[i];
  tile[threadIdx.x] = sum;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
  }
  cluster.sync();
  if (threadIdx.x == 0) cluster.map_shared_rank(of_blocks, 0)[cluster.block_rank()] = tile[0];
  cluster.sync();
  if (cluster.thread_rank() == 0) {
    float total = 0.0f;
    for (int rank = 0; rank < 8; ++rank) total += of_blocks[rank];
    y[blockIdx.x / 8] = total;
  }
}

// Tiles go around a ring, to the next block in each step, until each block has seen all.
__global__ void __cluster_dims__(4) ring_exchange(const float* x, float* y) {
  __shared__ float tiles[2][32];
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  tiles[0][threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  cluster.sync();
  float sum = 0.0f;
  for (int step = 0; step < 4; ++step) {
    const float value = tiles[step % 2][threadIdx.x];
    sum += value;
    cluster.map_shared_rank(tiles[(step + 1) % 2], next)[threadIdx.x] = value;
    cluster.sync();
  }
  y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

constexpr float kLeast = -3.4e38f;

// Softmax of rows that 16 blocks share, with the functions of opsmith/cluster.h.
__global__ void sixteen_blocks(const float* x, float* y, int width) {
  __shared__ float2 parts[16];
  extern __shared__ float row[];
  const unsigned blocks = opsmith::block_count_of_cluster(), rank = opsmith::rank_in_cluster();
  const int begin = rank * (width / blocks), count = width / blocks;
  const float* from = x + static_cast<size_t>(blockIdx.x / blocks) * width + begin;
  float most = kLeast, sum = 0.0f;
  for (int i = threadIdx.x; i < count; i += 32) {
    row[i] = from[i];
    most = fmaxf(most, row[i]);
  }
  for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, step));
  for (int i = threadIdx.x; i < count; i += 32) sum += expf(row[i] - most);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  opsmith::cluster_barrier();
  if (threadIdx.x < blocks) opsmith::store_in_block(&parts[rank], threadIdx.x, make_float2(most, sum));
  opsmith::cluster_barrier();
  float total = 0.0f, greatest = kLeast;
  for (int i = 0; i < blocks; ++i) greatest = fmaxf(greatest, parts[i].x);
  for (int i = 0; i < blocks; ++i) total += parts[i].y * expf(parts[i].x - greatest);
  float* to = y + static_cast<size_t>(blockIdx.x / blocks) * width + begin;
  for (int i = threadIdx.x; i < count; i += 32) to[i] = expf(row[i] - greatest) / total;
}

// Values of every size that opsmith/cluster.h moves, to the next block and back.
struct alignas(16) Sixteen {
  double a;
  int b;
  short c, d;
};
template <typename T>
__device__ bool comes_back(T* place, T value) {
  const unsigned blocks = opsmith::block_count_of_cluster(), next = (opsmith::rank_in_cluster() + 1) % blocks;
  opsmith::cluster_barrier();
  if (threadIdx.x == 0) opsmith::store_in_block(place, next, value);
  opsmith::cluster_arrive();
  opsmith::cluster_wait();
  const T found = opsmith::load_from_block(place, next);
  bool same = true;
  for (int i = 0; i < sizeof(T); ++i) {
    same &= reinterpret_cast<const char*>(&found)[i] == reinterpret_cast<const char*>(&value)[i];
  }
  opsmith::cluster_barrier();
  return same;
}
__global__ void __cluster_dims__(2, 1, 1) values_of_all_sizes(int* y) {
  __shared__ char one;
  __shared__ short two;
  __shared__ float four;
  __shared__ long long eight;
  __shared__ Sixteen sixteen;
  const int rank = blockIdx.x;
  Sixteen value;
  memset(&value, 0, sizeof(value));
  value.a = 1.5 + rank;
  value.d = -3;
  int good = comes_back(&one, static_cast<char>(-rank - 1));
  good += comes_back(&two, static_cast<short>(-300 - rank));
  good += comes_back(&four, 0.25f + rank);
  good += comes_back(&eight, (1ll << 40) + rank);
  good += comes_back(&sixteen, value);
  if (threadIdx.x == 0) y[blockIdx.x] = good;
}

// Where a thread is in a cluster of three dimensions, and the cluster in the grid.
__global__ void __cluster_dims__(2, 3, 2) places_in_clusters(int* y) {
  cg::cluster_group cluster = cg::this_cluster();
  cg::grid_group grid = cg::this_grid();
  const dim3 block = cluster.block_index(), blocks = cluster.dim_blocks(), thread = cluster.thread_index(),
             threads = cluster.dim_threads(), own = grid.cluster_index();
  int* const out = y + 20 * grid.thread_rank();
  out[0] = cluster.block_rank();
  out[1] = cluster.thread_rank();
  out[2] = cluster.num_blocks();
  out[3] = cluster.num_threads();
  out[4] = block.x, out[5] = block.y, out[6] = block.z;
  out[7] = blocks.x, out[8] = blocks.y, out[9] = blocks.z;
  out[10] = thread.x, out[11] = thread.y, out[12] = thread.z;
  out[13] = threads.x, out[14] = threads.y, out[15] = threads.z;
  out[16] = own.x, out[17] = own.y, out[18] = own.z;
  out[19] = grid.cluster_rank() + 100 * grid.num_clusters();
}

// Each warp does its own work between the two steps of the barrier, and the first barrier orders no memory.
__global__ void __cluster_dims__(4) split_barrier(const float* x, float* y) {
  __shared__ float tile[64];
  cg::cluster_group cluster = cg::this_cluster();
  __cluster_barrier_arrive_relaxed();
  const float value = x[blockIdx.x * blockDim.x + threadIdx.x];
  __cluster_barrier_wait();
  const unsigned other = cluster.num_blocks() - 1 - cluster.block_rank();
  cluster.map_shared_rank(tile, other)[threadIdx.x] = value;
  cg::cluster_group::arrival_token token = cluster.barrier_arrive();
  const float twice = 2.0f * value;
  cluster.barrier_wait(static_cast<cg::cluster_group::arrival_token&&>(token));
  y[blockIdx.x * blockDim.x + threadIdx.x] = tile[threadIdx.x] + twice;
}

// Launched without a cluster: the block is one by itself.
__global__ void cluster_of_one_block(const float* x, float* y) {
  __shared__ float tile[64];
  cg::cluster_group cluster = cg::this_cluster();
  tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  cluster.sync();
  const float* same = cluster.map_shared_rank(tile, cluster.block_rank());
  y[blockIdx.x * blockDim.x + threadIdx.x] =
      same[blockDim.x - 1 - threadIdx.x] + cluster.num_blocks() + cluster.query_shared_rank(tile);
  cluster.sync();
}

// A flag in another block's shared memory says that the data there are complete.
__global__ void __cluster_dims__(2) flag_in_a_neighbour(const float* x, float* y) {
  __shared__ float tile[32];
  __shared__ int flag;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) flag = 0;
  cluster.sync();
  if (cluster.block_rank() == 0) {
    cluster.map_shared_rank(tile, 1)[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    __threadfence();
    __syncwarp();
    if (threadIdx.x == 0) atomicExch(cluster.map_shared_rank(&flag, 1), 1);
  } else {
    while (atomicAdd(&flag, 0) == 0) {
    }
    __threadfence();
    y[blockIdx.x / 2 * 32 + threadIdx.x] = tile[threadIdx.x];
  }
  cluster.sync();
}

// Blocks of a cluster write parts to global memory, and the last cluster adds those of all.
__global__ void __cluster_dims__(4) last_cluster(const float* x, float* parts, float* y, unsigned* done) {
  __shared__ bool is_last;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) parts[blockIdx.x] = x[blockIdx.x];
  cluster.sync();
  if (cluster.thread_rank() == 0) {
    __threadfence();
    const bool last = atomicAdd(done, 1u) == gridDim.x / 4 - 1;
    __threadfence();
    for (int rank = 0; rank < 4; ++rank) *cluster.map_shared_rank(&is_last, rank) = last;
  }
  cluster.sync();
  if (is_last && cluster.block_rank() == 3 && threadIdx.x == 0) {
    float sum = 0.0f;
    for (int i = 0; i < gridDim.x; ++i) sum += parts[i];
    *y = sum;
  }
}

// Pointers at file scope to the dynamic shared memory, of which a block has more than 48 KiB.
extern __shared__ float large[];
__global__ void large_shared_memory(const float* x, float* y, int count) {
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < count; i += blockDim.x) large[i] = x[blockIdx.x * count + i];
  cluster.sync();
  const float* other = cluster.map_shared_rank(large, cluster.block_rank() ^ 1);
  for (int i = threadIdx.x; i < count; i += blockDim.x) y[blockIdx.x * count + i] = other[count - 1 - i];
  cluster.sync();
}

// Many barriers: what is recorded of the first ones is dropped.
__global__ void __cluster_dims__(2) many_barriers(int* y, int times) {
  __shared__ int value;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) value = cluster.block_rank();
  cluster.sync();
  for (int i = 0; i < times; ++i) {
    const int other = *cluster.map_shared_rank(&value, cluster.block_rank() ^ 1);
    cluster.sync();
    if (threadIdx.x == i % blockDim.x) value = other + 1;
    cluster.sync();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = value;
}
