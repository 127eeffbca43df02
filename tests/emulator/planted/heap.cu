// Kernels that misuse memory which they allocate themselves. The faulty line of each ends in `here`.

__global__ void allocation_overrun(const float* x, float* y, int n) {
  float* const own = static_cast<float*>(malloc(n * sizeof(float)));
  if (own == nullptr) return;
  for (int i = 0; i <= n; ++i) own[i] = x[i % n];  // here
  y[threadIdx.x] = own[threadIdx.x];
  free(own);
}

// [use_after_free]
__global__ void use_after_free(const float* x, float* y) {
  __shared__ float* tile;
  if (threadIdx.x == 0) tile = static_cast<float*>(malloc(blockDim.x * sizeof(float)));
  __syncthreads();
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) free(tile);
  __syncthreads();
  y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];  // here
}
// [use_after_free]

// [freed_by_every_thread]
__global__ void freed_by_every_thread(const float* x, float* y) {
  __shared__ float* tile;
  if (threadIdx.x == 0) tile = new float[blockDim.x];
  __syncthreads();
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
  __syncthreads();
  delete[] tile;  // here
}
// [freed_by_every_thread]
