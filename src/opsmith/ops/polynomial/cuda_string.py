"""polynomial as an inline CUDA string: the kernel that `using("cuda_string")` selects, forward and backward.

One pass each. A thread reads 16 bytes at a time where memory is aligned, with 64-bit indices. The gradients of the
coefficients are sums over all of x: a block adds its elements in a fixed order and torch adds the blocks' sums, so they
are deterministic. Coefficients must have one element; with a cubic for each column the reference runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import opsmith

cu = opsmith.cuda_source(r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Half types are computed in float and rounded once, when the result is written.
template <typename T> struct Compute { using type = float; };
template <> struct Compute<double> { using type = double; };

// What a thread reads at once.
template <typename T> struct alignas(16) Pack { T item[16 / sizeof(T)]; };

template <typename T> __device__ auto value(T item) { return static_cast<typename Compute<T>::type>(item); }

// y = a x^3 + b x^2 + c x + d, term by term as in the reference, so that infinite terms have the same sum.
template <typename T>
__global__ void __launch_bounds__(256) forward(
    const T* __restrict__ x, const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
    const T* __restrict__ d, T* __restrict__ y, long long count, bool aligned) {
  using C = typename Compute<T>::type;
  constexpr int width = 16 / sizeof(T);
  const C a0 = value(*a), b0 = value(*b), c0 = value(*c), d0 = value(*d);
  const auto cubic = [=](T item) {
    const C v = value(item), square = v * v, cube = square * v;
    return static_cast<T>(a0 * cube + b0 * square + c0 * v + d0);
  };
  const long long first = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  const long long step = gridDim.x * static_cast<long long>(blockDim.x);
  const long long packs = aligned ? count / width : 0;
  for (long long i = first; i < packs; i += step) {
    const Pack<T> in = reinterpret_cast<const Pack<T>*>(x)[i];
    Pack<T> out;
#pragma unroll
    for (int k = 0; k < width; ++k) out.item[k] = cubic(in.item[k]);
    reinterpret_cast<Pack<T>*>(y)[i] = out;
  }
  for (long long i = packs * width + first; i < count; i += step) y[i] = cubic(x[i]);
}

// grad_x = grad (3 a x^2 + 2 b x + c); partials [blocks, 4] are each block's sums of grad x^3, grad x^2, grad x, grad.
// Null if not needed. A thread adds the elements it reads, a warp its lanes by halves, four threads the warps.
template <typename T>
__global__ void __launch_bounds__(256) backward(
    const T* __restrict__ grad, const T* __restrict__ x, const T* __restrict__ a, const T* __restrict__ b,
    const T* __restrict__ c, T* __restrict__ grad_x, typename Compute<T>::type* __restrict__ partials, long long count,
    bool aligned) {
  using C = typename Compute<T>::type;
  constexpr int width = 16 / sizeof(T), warps = 256 / 32;
  const C a0 = value(*a), b0 = value(*b), c0 = value(*c);
  C sums[4] = {};
  const auto step_back = [=](T grad_item, T item, C (&added_to)[4]) {
    const C g = value(grad_item), v = value(item), square = v * v;
    added_to[0] += g * (square * v);
    added_to[1] += g * square;
    added_to[2] += g * v;
    added_to[3] += g;
    return static_cast<T>(g * (3 * a0 * square + 2 * b0 * v + c0));
  };
  const long long first = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  const long long step = gridDim.x * static_cast<long long>(blockDim.x);
  const long long packs = aligned ? count / width : 0;
  for (long long i = first; i < packs; i += step) {
    const Pack<T> grads = reinterpret_cast<const Pack<T>*>(grad)[i];
    const Pack<T> in = reinterpret_cast<const Pack<T>*>(x)[i];
    Pack<T> out;
    C few[4] = {};  // added up before they are added to a large sum: fewer roundings of that one
#pragma unroll
    for (int k = 0; k < width; ++k) out.item[k] = step_back(grads.item[k], in.item[k], few);
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[k] += few[k];
    if (grad_x != nullptr) reinterpret_cast<Pack<T>*>(grad_x)[i] = out;
  }
  for (long long i = packs * width + first; i < count; i += step) {
    const T out = step_back(grad[i], x[i], sums);
    if (grad_x != nullptr) grad_x[i] = out;
  }
  if (partials == nullptr) return;
  __shared__ C of_warps[4][warps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int half = 16; half > 0; half /= 2) sums[k] += __shfl_down_sync(0xffffffffu, sums[k], half);
    if (lane == 0) of_warps[k][warp] = sums[k];
  }
  __syncthreads();
  if (threadIdx.x < 4) {
    C sum = 0;
    for (int each = 0; each < warps; ++each) sum += of_warps[threadIdx.x][each];
    partials[4 * static_cast<long long>(blockIdx.x) + threadIdx.x] = sum;
  }
}
""")

TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
}
FORWARD = {dtype: cu[f"forward<{name}>"] for dtype, name in TYPES.items()}
BACKWARD = {dtype: cu[f"backward<{name}>"] for dtype, name in TYPES.items()}
THREADS = 256
BYTES_OF_A_THREAD = 16
BLOCKS_OF_A_MULTIPROCESSOR = 4
"""For the backward: enough to keep the memory busy; more would only mean more partial sums."""


def forward(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Any:
    if not _taken(x, (a, b, c, d)):
        return NotImplemented
    y = torch.empty_like(x)
    count = x.numel()
    if count:
        inputs = _laid_out_as(y, x)
        blocks = -(-count * x.element_size() // (BYTES_OF_A_THREAD * THREADS))
        launch = FORWARD[x.dtype][min(blocks, 2**31 - 1), THREADS]
        launch(_flat(inputs), a, b, c, d, _flat(y), count, _aligned(inputs, y))
    return y


def backward(grads: Sequence[Tensor], x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, *, needs: Any) -> Any:
    (grad,) = grads
    coefficients = (a, b, c, d)
    if not _taken(x, coefficients) or not _alike(grad, x):
        return NotImplemented
    grad_x = torch.empty_like(x)
    inputs, grad = _laid_out_as(grad_x, x), _laid_out_as(grad_x, grad)
    of_coefficients = (needs.a, needs.b, needs.c, needs.d)
    # Under emulation there is no GPU, and a few blocks are enough.
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    blocks = BLOCKS_OF_A_MULTIPROCESSOR * multiprocessors
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    count = x.numel()
    partials = torch.zeros(0, 4, dtype=wide, device=x.device)
    if count:
        if any(of_coefficients):
            partials = torch.empty(blocks, 4, dtype=wide, device=x.device)
        BACKWARD[x.dtype][blocks, THREADS](
            _flat(grad),
            _flat(inputs),
            a,
            b,
            c,
            _flat(grad_x) if needs.x else None,
            partials if any(of_coefficients) else None,
            count,
            _aligned(grad, inputs, grad_x),
        )
    sums = partials.sum(0).to(x.dtype).unbind() if any(of_coefficients) else [None] * 4
    found = [
        sum_.clone().reshape(each.shape) if needed and sum_ is not None else None
        for sum_, each, needed in zip(sums, coefficients, of_coefficients, strict=True)
    ]
    return grad_x if needs.x else None, *found


def _taken(x: Tensor, coefficients: Sequence[Tensor]) -> bool:
    """Whether the result has the shape and dtype of x."""
    return x.dtype in TYPES and all(
        each.numel() == 1 and each.ndim <= x.ndim and each.dtype == x.dtype and each.device == x.device
        for each in coefficients
    )


def _alike(grad: Tensor, x: Tensor) -> bool:
    """Whether gradient and input have the same order in memory, or the gradient is one number everywhere."""
    one_order = (grad.is_contiguous() and x.is_contiguous()) or grad.stride() == x.stride()
    return grad.dtype == x.dtype and (one_order or (x.is_contiguous() and not any(grad.stride())))


def _laid_out_as(model: Tensor, tensor: Tensor) -> Tensor:
    """The tensor in the memory order of `model`, which is dense."""
    if tensor.stride() == model.stride() or (tensor.is_contiguous() and model.is_contiguous()):
        return tensor
    return torch.empty_like(model).copy_(tensor)


def _flat(tensor: Tensor) -> Tensor:
    """A dense tensor as one dimension, in memory order."""
    return tensor if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))


def _aligned(*tensors: Tensor) -> bool:
    return not any(tensor.data_ptr() % BYTES_OF_A_THREAD for tensor in tensors)
