// Kernels that show how fast the emulator is, and that blocks run on several cores.

// One element a thread.
__global__ void pointwise(const float* x, float* y, float scale, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = scale * x[i] + 1.0f;
}

// Nothing but barriers.
__global__ void barriers(float* y, int times) {
  for (int i = 0; i < times; ++i) __syncthreads();
  y[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
}

// Every block waits until all have come.
__global__ void meeting(int* arrived) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < static_cast<int>(gridDim.x)) {
    }
  }
}
