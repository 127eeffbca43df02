// my_op on a GPU, for contiguous rows:
//   total = x + residual, y = total * scale * weight, scale = 1 / sqrt(mean(total^2) + eps)
//
// A block computes a row at a time. Each thread adds up its columns; block_sum adds the threads' sums in a fixed order,
// so the same call gives the same bits. Half types are computed in float32 and rounded once.
#include <opsmith/kernel.h>

#include <algorithm>
#include <optional>
#include <tuple>

namespace {

using opsmith::Tensor;

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;  // further rows are computed by the same blocks; also the rows of `partial`
constexpr int kWarps = kThreads / 32;

template <typename T>
using Computed = std::conditional_t<sizeof(T) == 2, float, T>;

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
__global__ void forward_kernel(
    const T* x, const T* residual, const T* weight, T* y, T* total, double eps, int64_t rows, int64_t columns) {
  using V = Computed<T>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t start = row * columns;
    V squares = 0;
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const V sum = V(x[start + i]) + V(residual[start + i]);
      squares += sum * sum;
    }
    const V scale = V(1) / sqrt(block_sum(squares) / V(columns) + V(eps));
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
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
__global__ void backward_kernel(
    const T* grad_y, const T* grad_total, const T* total, const T* weight, T* grad_x, T* grad_residual,
    Computed<T>* partial, double eps, int64_t rows, int64_t columns) {
  using V = Computed<T>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t start = row * columns;
    V squares = 0, products = 0;
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const V sum = V(total[start + i]);
      squares += sum * sum;
      if (grad_y) products += V(grad_y[start + i]) * V(weight[i]) * sum;
    }
    const V scale = V(1) / sqrt(block_sum(squares) / V(columns) + V(eps));
    const V factor = block_sum(products) / V(columns) * scale * scale * scale;
    for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
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

// --- Host -------------------------------------------------------------------------------------------------------

template <typename Function>
void dispatch(const Tensor& x, Function&& function) {
  opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16>(x, "x", function);
}

void validate(const Tensor& x, const Tensor& residual, const Tensor& weight) {
  opsmith::expect(x, "x").cuda().contiguous();
  if (x.dim() == 0) opsmith::fail("x has no dimension; it must be [..., features]");
  opsmith::expect(residual, "residual").same_device(x, "x").same_dtype(x, "x").same_shape(x, "x").contiguous();
  opsmith::expect(weight, "weight").same_device(x, "x").same_dtype(x, "x").shape({x.size(x.dim() - 1)}).contiguous();
}

void compute(Tensor x, Tensor residual, Tensor weight, Tensor y, Tensor total, double eps) {
  if (x.numel() == 0) return;
  const int64_t columns = weight.numel(), rows = x.numel() / columns;
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    opsmith::launch(
        forward_kernel<T>, {std::min(rows, kMostBlocks), kThreads}, x, opsmith::data<const T>(x),
        opsmith::data<const T>(residual), opsmith::data<const T>(weight), opsmith::data<T>(y), opsmith::data<T>(total),
        eps, rows, columns);
  });
}

std::tuple<Tensor, Tensor> forward(Tensor x, Tensor residual, Tensor weight, double eps) {
  validate(x, residual, weight);
  Tensor y = opsmith::empty_like(x), total = opsmith::empty_like(x);
  compute(x, residual, weight, y, total, eps);
  return {y, total};
}

void in_place(Tensor x, Tensor residual, Tensor weight, double eps) {
  validate(x, residual, weight);
  compute(x, residual, weight, x, residual, eps);
}

// The elements of a tensor that may be absent.
template <typename T>
T* data(const std::optional<Tensor>& x) {
  return x ? opsmith::data<T>(*x) : nullptr;
}

// The gradients that `needs` asks for.
std::vector<Tensor> backward(
    std::optional<Tensor> grad_y, std::optional<Tensor> grad_total, Tensor weight, double eps, Tensor total,
    std::vector<bool> needs) {
  const int64_t columns = weight.numel(), rows = columns == 0 ? 0 : total.numel() / columns;
  const int64_t blocks = std::min(rows, kMostBlocks);
  std::optional<Tensor> grad_x, grad_residual, partial;
  if (needs[0]) grad_x = opsmith::empty_like(total);
  if (needs[1]) grad_residual = opsmith::empty_like(total);
  dispatch(total, [&](auto zero) {
    using T = decltype(zero);
    if (needs[2]) {
      Tensor zeros = opsmith::empty<Computed<T>>(total, std::vector<int64_t>{blocks, columns});
      partial = torch::stable::zero_(zeros);
    }
    if (total.numel() == 0) return;
    opsmith::launch(
        backward_kernel<T>, {blocks, kThreads}, total, data<const T>(grad_y), data<const T>(grad_total),
        opsmith::data<const T>(total), opsmith::data<const T>(weight), data<T>(grad_x), data<T>(grad_residual),
        data<Computed<T>>(partial), eps, rows, columns);
  });
  std::vector<Tensor> found;
  if (needs[0]) found.push_back(*grad_x);
  if (needs[1]) found.push_back(*grad_residual);
  if (needs[2]) {
    const std::vector<int64_t> of_blocks{0};
    const Tensor sum = torch::stable::sum(*partial, of_blocks, /*keepdim=*/false);
    found.push_back(torch::stable::to(sum, weight.scalar_type()));
  }
  return found;
}

}  // namespace

OPSMITH_EXPORT(forward_of_my_op, forward)
OPSMITH_EXPORT(in_place_of_my_op, in_place)
OPSMITH_EXPORT(backward_of_my_op, backward)
