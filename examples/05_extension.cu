// examples::rms_norm on a GPU: a block has a row, and its threads add their elements' squares up in shared memory.
#include <opsmith/kernel.h>

using opsmith::Tensor;

constexpr int kThreads = 256;

template <typename scalar>
__global__ void rms_norm_kernel(const scalar* x, scalar* out, scalar eps, int64_t columns) {
  __shared__ scalar sums[kThreads];
  const scalar* in = x + blockIdx.x * columns;
  scalar* to = out + blockIdx.x * columns;
  scalar sum = 0;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) sum += in[i] * in[i];
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  const scalar factor = rsqrt(sums[0] / columns + eps);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) to[i] = in[i] * factor;
}

// [host]
Tensor rms_norm_on_cuda(Tensor x, double eps) {
  opsmith::expect(x, "x").cuda().dims(2).contiguous();            // 1. validate
  Tensor out = opsmith::empty_like(x);
  if (x.numel() == 0) return out;
  const opsmith::Stream stream = opsmith::current_stream(x);      // 2. the GPU of x, and torch's stream of it
  opsmith::dispatch<float, double>(x, "x", [&](auto zero) {       // 3. from the dtype to a C++ type
    using scalar = decltype(zero);
    opsmith::launch(rms_norm_kernel<scalar>, {x.size(0), kThreads}, stream,  // 4. launch, checked
                    opsmith::data<const scalar>(x), opsmith::data<scalar>(out), eps, x.size(1));
  });
  return out;
}

OPSMITH_EXPORT(rms_norm_cuda, rms_norm_on_cuda)
// [host]
