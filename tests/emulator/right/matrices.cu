// Right kernels that go through matrices in tiles: products, a transpose, stencils.
// opsmith: allow-file(int32-index): the emulator is given small tensors, and most kernels count in int

#define TILE 16

// Each block computes a tile of c = a b; the tiles of a and b go through shared memory.
__global__ void __launch_bounds__(TILE* TILE) tiled_matmul(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int rows, int columns, int depth) {
  __shared__ float tile_a[TILE][TILE];
  __shared__ float tile_b[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int begin = 0; begin < depth; begin += TILE) {
    const int k_a = begin + threadIdx.x, k_b = begin + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < rows && k_a < depth ? a[row * depth + k_a] : 0.0f;
    tile_b[threadIdx.y][threadIdx.x] = column < columns && k_b < depth ? b[k_b * columns + column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

// The same with two buffers: the next tile is loaded while this one is used, and one barrier a tile is enough.
__global__ void double_buffered_matmul(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int rows, int columns, int depth) {
  __shared__ float tile_a[2][TILE][TILE];
  __shared__ float tile_b[2][TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  const auto load = [&](int buffer, int begin) {
    const int k_a = begin + threadIdx.x, k_b = begin + threadIdx.y;
    tile_a[buffer][threadIdx.y][threadIdx.x] = row < rows && k_a < depth ? a[row * depth + k_a] : 0.0f;
    tile_b[buffer][threadIdx.y][threadIdx.x] = column < columns && k_b < depth ? b[k_b * columns + column] : 0.0f;
  };
  float sum = 0.0f;
  load(0, 0);
  __syncthreads();
  for (int begin = 0, buffer = 0; begin < depth; begin += TILE, buffer ^= 1) {
    if (begin + TILE < depth) load(buffer ^ 1, begin + TILE);
    for (int k = 0; k < TILE; ++k) sum += tile_a[buffer][threadIdx.y][k] * tile_b[buffer][k][threadIdx.x];
    __syncthreads();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

// A tile of 32 x 32 by 32 x 8 threads; the column of padding keeps banks apart.
__global__ void transpose(const float* __restrict__ x, float* __restrict__ y, int rows, int columns) {
  __shared__ float tile[32][33];
  int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  for (int k = 0; k < 32; k += 8) {
    if (row + k < rows && column < columns) tile[threadIdx.y + k][threadIdx.x] = x[(row + k) * columns + column];
  }
  __syncthreads();
  row = blockIdx.x * 32 + threadIdx.y;
  column = blockIdx.y * 32 + threadIdx.x;
  for (int k = 0; k < 32; k += 8) {
    if (row + k < columns && column < rows) y[(row + k) * rows + column] = tile[threadIdx.x][threadIdx.y + k];
  }
}

__constant__ float weights[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};

// y[i] = sum of weights[k] x[i + k - 2], zero outside: each block loads its elements and two on either side.
__global__ void stencil_1d(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float tile[128 + 4];
  const int i = blockIdx.x * 128 + threadIdx.x;
  tile[threadIdx.x + 2] = i < n ? x[i] : 0.0f;
  if (threadIdx.x < 2) {
    const int left = i - 2, right = i + 128;
    tile[threadIdx.x] = left >= 0 ? x[left] : 0.0f;
    tile[threadIdx.x + 130] = right < n ? x[right] : 0.0f;
  }
  __syncthreads();
  if (i >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < 5; ++k) sum += weights[k] * tile[threadIdx.x + k];
  y[i] = sum;
}

// Five points, the frame of the tile loaded by those at its edge.
__global__ void stencil_2d(const float* __restrict__ x, float* __restrict__ y, int rows, int columns) {
  __shared__ float tile[TILE + 2][TILE + 2];
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  const int r = threadIdx.y + 1, c = threadIdx.x + 1;
  const auto at = [&](int i, int j) {
    return i >= 0 && i < rows && j >= 0 && j < columns ? __ldg(&x[i * columns + j]) : 0.0f;
  };
  tile[r][c] = at(row, column);
  if (r == 1) tile[0][c] = at(row - 1, column);
  if (r == TILE) tile[TILE + 1][c] = at(row + 1, column);
  if (c == 1) tile[r][0] = at(row, column - 1);
  if (c == TILE) tile[r][TILE + 1] = at(row, column + 1);
  __syncthreads();
  if (row < rows && column < columns) {
    y[row * columns + column] =
        tile[r - 1][c] + tile[r + 1][c] + tile[r][c - 1] + tile[r][c + 1] - 4.0f * tile[r][c];
  }
}

// Grids and blocks of three dimensions: y[k, j, i] = x[i, j, k].
__global__ void permute_3d(const float* x, float* y, int size_x, int size_y, int size_z) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int j = blockIdx.y * blockDim.y + threadIdx.y;
  const int k = blockIdx.z * blockDim.z + threadIdx.z;
  if (i < size_x && j < size_y && k < size_z) y[(k * size_y + j) * size_x + i] = x[(i * size_y + j) * size_z + k];
}
