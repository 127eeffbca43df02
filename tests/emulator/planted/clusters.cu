// Kernels with mistakes between the blocks of a cluster. The faulty line of each ends in `here`; of a race, both lines.

#include <cooperative_groups.h>
#include <opsmith/cluster.h>

namespace cg = cooperative_groups;

// --- Blocks that are not there ---------------------------------------------------------------------------------------

__global__ void __cluster_dims__(4) rank_out_of_range(const float* x, float* y) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) value = x[blockIdx.x];
  cluster.sync();
  const float* next = cluster.map_shared_rank(&value, cluster.block_rank() + 1);
  if (threadIdx.x == 0) y[blockIdx.x] = *next;  // here
  cluster.sync();
}

__global__ void __cluster_dims__(4) rank_below_zero(const float* x, float* y) {
  __shared__ float value;
  const int rank = opsmith::rank_in_cluster();
  if (threadIdx.x == 0) value = 0.0f;
  opsmith::cluster_barrier();
  if (threadIdx.x == 0) opsmith::store_in_block(&value, rank - 1, x[blockIdx.x]);  // here
  opsmith::cluster_barrier();
  if (threadIdx.x == 0) y[blockIdx.x] = value;
}

// Launched without a cluster, so that there is one block in it.
__global__ void launched_without_a_cluster(const float* x, float* y) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) value = x[blockIdx.x];
  cluster.sync();
  if (threadIdx.x == 0) y[blockIdx.x] = *cluster.map_shared_rank(&value, blockIdx.x ^ 1);  // here
  cluster.sync();
}

__global__ void __cluster_dims__(2) global_memory_of_another_block(const float* x, float* y) {
  cg::cluster_group cluster = cg::this_cluster();
  y[blockIdx.x] = *cluster.map_shared_rank(x, cluster.block_rank() ^ 1);  // here
}

// [no_last_cluster_barrier]
__global__ void __cluster_dims__(2) no_last_cluster_barrier(const float* x, float* y) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) value = x[blockIdx.x];
  cluster.sync();
  const float* other = cluster.map_shared_rank(&value, cluster.block_rank() ^ 1);
  if (threadIdx.x == 0) y[blockIdx.x] = *other;  // here
}
// [no_last_cluster_barrier]

// The block with the data may run last, and then it works.
__global__ void __cluster_dims__(4) read_from_the_last_block(const float* x, float* y) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) value = x[blockIdx.x];
  cluster.sync();
  if (threadIdx.x < 32 && cluster.block_rank() == 0) {
    y[threadIdx.x] = *cluster.map_shared_rank(&value, 3);  // here
  }
}

__global__ void __cluster_dims__(4) added_to_a_block_that_ends(const int* x, int* y) {
  extern __shared__ int sum[];
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) *sum = 0;
  cluster.sync();
  atomicAdd(cluster.map_shared_rank(sum, 0), x[threadIdx.x]);  // here
  __syncthreads();
  if (cluster.thread_rank() == 0) *y = *sum;
}

__global__ void __cluster_dims__(2) no_first_cluster_barrier(const float* x, float* y) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  float* const other = cluster.map_shared_rank(&value, cluster.block_rank() ^ 1);
  if (threadIdx.x == 0) *other = x[blockIdx.x];  // here
  cluster.sync();
  if (threadIdx.x == 0) y[blockIdx.x] = value;
}

// --- Bounds ------------------------------------------------------------------------------------------------------------

__global__ void __cluster_dims__(2) past_a_neighbours_array(const float* x, float* y) {
  __shared__ float tile[64];
  cg::cluster_group cluster = cg::this_cluster();
  tile[threadIdx.x] = x[threadIdx.x];
  cluster.sync();
  const float* other = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1);
  y[blockIdx.x * blockDim.x + threadIdx.x] = other[threadIdx.x + 1];  // here
  cluster.sync();
}

__global__ void past_a_neighbours_dynamic_memory(const float* x, float* y) {
  extern __shared__ float tile[];  // launched with 64 floats
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  float* const other = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1);
  other[2 * threadIdx.x] = x[threadIdx.x];  // here
  cluster.sync();
  y[blockIdx.x * blockDim.x + threadIdx.x] = tile[threadIdx.x];
}

__global__ void __cluster_dims__(2) misaligned_in_a_neighbour(const float* x, float* y) {
  __shared__ float tile[68];
  cg::cluster_group cluster = cg::this_cluster();
  tile[threadIdx.x] = x[threadIdx.x];
  cluster.sync();
  const float* other = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1) + 1;
  const float4 four = *reinterpret_cast<const float4*>(other);  // here
  y[threadIdx.x] = four.x;
  cluster.sync();
}

// --- What no thread has written ------------------------------------------------------------------------------------------

__global__ void __cluster_dims__(2) neighbours_array_half_filled(const float* x, float* y) {
  __shared__ float tile[64];
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x < 32) tile[threadIdx.x] = x[threadIdx.x];
  cluster.sync();
  const float* other = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1);
  y[blockIdx.x * blockDim.x + threadIdx.x] = other[threadIdx.x];  // here
  cluster.sync();
}

// --- Races ---------------------------------------------------------------------------------------------------------------

// [block_barrier_for_a_cluster_barrier]
__global__ void __cluster_dims__(2) block_barrier_for_a_cluster_barrier(const float* x, float* y) {
  __shared__ float tile[64];
  cg::cluster_group cluster = cg::this_cluster();
  const float* other = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1);
  cluster.sync();
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];          // here
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = other[63 - threadIdx.x];  // here
  cluster.sync();
}
// [block_barrier_for_a_cluster_barrier]

__global__ void __cluster_dims__(4) ring_with_one_buffer(const float* x, float* y) {
  __shared__ float tile[32];
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned next = (cluster.block_rank() + 1) % 4;
  tile[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
  cluster.sync();
  float sum = 0.0f;
  for (int step = 0; step < 4; ++step) {
    const float value = tile[threadIdx.x];  // here
    sum += value;
    cluster.map_shared_rank(tile, next)[threadIdx.x] = value;  // here
    cluster.sync();
  }
  y[blockIdx.x * 32 + threadIdx.x] = sum;
}

__global__ void __cluster_dims__(4) cluster_histogram_without_atomics(const int* x, int* y, int n) {
  __shared__ int bins[4];
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x < 4) bins[threadIdx.x] = 0;
  cluster.sync();
  for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads()) {
    ++cluster.map_shared_rank(bins, x[i] / 4)[x[i] % 4];  // here
  }
  cluster.sync();
  if (threadIdx.x < 4) y[4 * blockIdx.x + threadIdx.x] = bins[threadIdx.x];
}

__global__ void __cluster_dims__(4) everybody_writes_to_the_first(const float* x, float* y) {
  __shared__ float most;
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  if (threadIdx.x == 0) *cluster.map_shared_rank(&most, 0) = x[blockIdx.x];  // here
  cluster.sync();
  if (cluster.thread_rank() == 0) *y = most;
}

__global__ void __cluster_dims__(2) relaxed_arrival_for_data(const float* x, float* y) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  if (threadIdx.x == 0) *cluster.map_shared_rank(&value, cluster.block_rank() ^ 1) = x[blockIdx.x];  // here
  __cluster_barrier_arrive_relaxed();
  __cluster_barrier_wait();
  if (threadIdx.x == 0) y[blockIdx.x] = value;  // here
}

__global__ void __cluster_dims__(2) written_after_the_arrival(const float* x, float* y) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  cluster.barrier_arrive();
  if (threadIdx.x == 0) *cluster.map_shared_rank(&value, cluster.block_rank() ^ 1) = x[blockIdx.x];  // here
  cluster.barrier_wait();
  if (threadIdx.x == 0) y[blockIdx.x] = value;  // here
  cluster.sync();
}

__global__ void __cluster_dims__(2) fence_of_the_block_alone(const float* x, float* y) {
  __shared__ float value;
  __shared__ int flag;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) flag = 0;
  cluster.sync();
  if (cluster.thread_rank() == 0) {
    *cluster.map_shared_rank(&value, 1) = x[0];  // here
    __threadfence_block();
    atomicExch(cluster.map_shared_rank(&flag, 1), 1);
  } else if (cluster.block_rank() == 1 && threadIdx.x == 0) {
    while (atomicAdd(&flag, 0) == 0) {
    }
    __threadfence();
    y[0] = value;  // here
  }
  cluster.sync();
}

__global__ void __cluster_dims__(2) global_memory_between_blocks(const float* x, float* y, float* parts) {
  cg::cluster_group cluster = cg::this_cluster();
  parts[blockIdx.x * 32 + threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];  // here
  __syncthreads();
  y[blockIdx.x * 32 + threadIdx.x] = parts[(blockIdx.x ^ 1) * 32 + threadIdx.x];  // here
  cluster.sync();
}

// --- Barriers that not all threads reach -------------------------------------------------------------------------------

// [cluster_barrier_in_a_branch]
__global__ void __cluster_dims__(2) cluster_barrier_in_a_branch(const float* x, float* y, int n) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  if (blockIdx.x * blockDim.x + threadIdx.x < n) {
    if (threadIdx.x == 0) value = x[blockIdx.x];
    cluster.sync();  // here
    if (threadIdx.x == 0) y[blockIdx.x] = *cluster.map_shared_rank(&value, 0);
  }
}
// [cluster_barrier_in_a_branch]

__global__ void __cluster_dims__(4) a_block_returns_early(const float* x, float* y, int blocks) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  if (blockIdx.x >= blocks) return;
  if (threadIdx.x == 0) value = x[blockIdx.x];
  cluster.sync();  // here
  if (threadIdx.x == 0) y[blockIdx.x] = value;
}

// Nobody waits before all threads that are left have arrived.
__global__ void __cluster_dims__(2) a_block_returns_before_a_split_barrier(const float* x, float* y) {
  cg::cluster_group cluster = cg::this_cluster();
  if (cluster.block_rank() == 1) return;
  cluster.barrier_arrive();
  __syncthreads();
  y[threadIdx.x] = x[threadIdx.x];
  cluster.barrier_wait();  // here
}

__global__ void __cluster_dims__(2) one_block_has_a_barrier_more(const float* x, float* y) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) value = x[blockIdx.x];
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) y[0] = *cluster.map_shared_rank(&value, 1);
  cluster.sync();
  if (cluster.block_rank() == 0) cluster.sync();  // here
}

__global__ void __cluster_dims__(2) barriers_of_block_and_cluster(const float* x, float* y) {
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x < 32) {
    cluster.sync();
  } else {
    __syncthreads();  // here
  }
  y[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x];
}

__global__ void __cluster_dims__(2) arrives_twice(float* y) {
  cg::cluster_group cluster = cg::this_cluster();
  cluster.barrier_arrive();
  y[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
  cluster.barrier_arrive();  // here
  cluster.barrier_wait();
}

__global__ void __cluster_dims__(2) waits_without_arriving(float* y) {
  cg::cluster_group cluster = cg::this_cluster();
  y[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
  cluster.barrier_wait();  // here
}

// Without a cluster at the launch.
__global__ void returns_before_a_barrier_of_one(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  cg::this_cluster().sync();  // here
  y[i] = x[i];
}

// --- Hangs ---------------------------------------------------------------------------------------------------------------

__global__ void __cluster_dims__(2) waits_for_a_flag_of_nobody(float* y) {
  __shared__ int flag;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) flag = 0;
  cluster.sync();
  while (atomicAdd(cluster.map_shared_rank(&flag, 1), 0) == 0) {  // here
  }
  cluster.sync();
  y[0] = 1.0f;
}
