// my_op on a GPU, for contiguous rows:
//   total = x + residual, y = total * scale * weight, scale = 1 / sqrt(mean(total^2) + eps)
//
// A block computes a row at a time. Each thread adds up its columns; block_sum adds the threads' sums in a fixed order,
// so the same call gives the same bits. Half types are computed in float32 and rounded once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <typename T>
struct Computed {
  using type = float;
};
template <>
struct Computed<double> {
  using type = double;
};

// The sum over the block, in every thread.
template <typename V>
__device__ V block_sum(V value) {
  __shared__ V of_warps[kWarps];
  for (int half = 16; half > 0; half /= 2) value += __shfl_xor_sync(0xffffffffu, value, half);
  __syncthreads();  // every thread has read the sums of the call before
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  V sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += of_warps[warp];
  return sum;
}

// In place if y is x and total is residual: a thread reads an element before it writes there, and no other thread does
// either.
template <typename T>
__global__ void my_op_forward(
    const T* x, const T* residual, const T* weight, T* y, T* total, double eps, long long rows, long long columns) {
  using V = typename Computed<T>::type;
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long start = row * columns;
    V squares = 0;
    for (long long i = threadIdx.x; i < columns; i += kThreads) {
      const V sum = V(x[start + i]) + V(residual[start + i]);
      squares += sum * sum;
    }
    const V scale = V(1) / sqrt(block_sum(squares) / V(columns) + V(eps));
    for (long long i = threadIdx.x; i < columns; i += kThreads) {
      const V sum = V(x[start + i]) + V(residual[start + i]);
      total[start + i] = T(sum);
      y[start + i] = T(sum * scale * V(weight[i]));
    }
  }
}

// With g = grad_y * weight:
//   grad of total   grad_total + scale * g - total * scale^3 * mean(g * total), which is that of x and of residual
//   grad of weight  the sum over rows of grad_y * total * scale: a row of `partial` for each block, which the caller adds up
// Null pointers: grad_y or grad_total where no gradient came back; grad_x, grad_residual or partial where none is needed.
template <typename T>
__global__ void my_op_backward(
    const T* grad_y, const T* grad_total, const T* total, const T* weight, T* grad_x, T* grad_residual,
    typename Computed<T>::type* partial, double eps, long long rows, long long columns) {
  using V = typename Computed<T>::type;
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long start = row * columns;
    V squares = 0, products = 0;
    for (long long i = threadIdx.x; i < columns; i += kThreads) {
      const V sum = V(total[start + i]);
      squares += sum * sum;
      if (grad_y) products += V(grad_y[start + i]) * V(weight[i]) * sum;
    }
    const V scale = V(1) / sqrt(block_sum(squares) / V(columns) + V(eps));
    const V factor = block_sum(products) / V(columns) * scale * scale * scale;
    for (long long i = threadIdx.x; i < columns; i += kThreads) {
      const V sum = V(total[start + i]);
      const V grad = grad_y ? V(grad_y[start + i]) : V(0);
      const V after = grad_total ? V(grad_total[start + i]) : V(0);
      const V result = after + scale * grad * V(weight[i]) - factor * sum;
      if (grad_x) grad_x[start + i] = T(result);
      if (grad_residual) grad_residual[start + i] = T(result);
      if (partial) partial[blockIdx.x * columns + i] += grad * sum * scale;
    }
  }
}
