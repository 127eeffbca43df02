"""A CUDA kernel with no host code and no binding. Without a GPU it is compiled for one, and the reference runs."""

import torch

import opsmith

# [source]
cu = opsmith.cuda_source(r"""
// y = x / |x|, row by row. One block per row: a thread adds the squares of its columns, a warp its lanes by halves, and
// every thread the warps' sums, in one order.
template <typename T>
__global__ void normalize(const T* __restrict__ x, T* __restrict__ y, long long columns) {
  extern __shared__ float of_warps[];
  const T* row = x + blockIdx.x * columns;
  float sum = 0;
  for (long long i = threadIdx.x; i < columns; i += blockDim.x) sum += float(row[i]) * float(row[i]);
  for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffff, sum, half);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += of_warps[warp];
  T* out = y + blockIdx.x * columns;
  for (long long i = threadIdx.x; i < columns; i += blockDim.x) out[i] = float(row[i]) / sqrtf(sum);
}
""")
# [source]


# [op]
@opsmith.op("examples::normalize")
def normalize(x: torch.Tensor) -> torch.Tensor:
    return x / x.float().norm(dim=1, keepdim=True).to(x.dtype)


@normalize.register_kernel("cuda")
def _(x):
    if x.dtype is not torch.float32 or x.numel() == 0:
        return NotImplemented  # the reference runs
    y, threads = torch.empty_like(x), 256
    cu["normalize<float>"][x.shape[0], threads, threads // 32 * 4](x, y, x.shape[1])  # grid, block, shared bytes
    return y


# [op]
# [compile]
needs = cu["normalize<float>"].compile(arch="sm_90").attributes  # no GPU is needed
print(f"compiled for sm_90: {needs.registers} registers, {needs.spill_bytes} bytes spilled")
# [compile]

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.randn(100, 1000, device=device, requires_grad=True)
y = normalize(x)
y.sum().backward()  # derived from the reference
torch.testing.assert_close(y, torch.nn.functional.normalize(x, dim=1))
print(f"normalized on {device}: rows of length {y.norm(dim=1).mean():.3f}, a gradient {tuple(x.grad.shape)}")
try:
    cu["normalize<float>"][100, 2048](x, y, 1000)
except opsmith.OpsmithError as error:
    print("refused:", error)
