// Every form of a comment that allows.
// opsmith: allow-file(int32-index, unchecked-launch): at most a thousand elements, and the caller checks
#include <torch/extension.h>

/* opsmith: allow(messageless-check): the macro is used where no user comes */
#define CHECK_CUDA(x) \
  TORCH_CHECK(x.is_cuda())

__global__ void sum(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  // opsmith: allow(float-atomics): whole numbers, whose sums are exact
  if (i < n) atomicAdd(y, x[i]);
}

void launch_sum(const float* x, float* y, int n) {
  sum<<<4, 256>>>(x, y, n);  // opsmith: allow(default-stream)
  /* opsmith: allow(device-synchronise) */ cudaDeviceSynchronize();
}
