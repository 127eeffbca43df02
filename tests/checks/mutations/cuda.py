"""Faults of CUDA C++ kernels, found on a machine without a GPU: the checklist runs them in the emulator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import opsmith

from .library import mutation, samples

FINDERS = ("values", "gradients", "sizes", "generated", "input_layouts", "outputs_written", "determinism")


def doubled(x: Tensor) -> Tensor:
    return x * 2


def row_sums(x: Tensor) -> Tensor:
    return x.sum(-1)


def _rows(size: tuple[int, ...], device: Any, dtype: torch.dtype) -> tuple[Tensor]:
    return (torch.randn(size, device=device, dtype=dtype),)


def _doubled(name: str, body: str, blocks: Any = lambda n: -(-n // 128), count: str = "long long n") -> opsmith.Op:
    """x * 2 by a kernel with this body, float32 alone."""
    op = opsmith.op(name)(doubled)
    samples(op, _rows, (5, 60), (300,))
    source = opsmith.cuda_source(
        f'extern "C" __global__ void twice(const float* __restrict__ x, float* __restrict__ y, {count}) {{\n{body}}}\n'
    )

    @op.register_kernel("cuda")
    def _(x: Tensor) -> Tensor:
        if x.dtype is not torch.float32:
            return NotImplemented  # type: ignore[no-any-return]
        y = torch.empty_like(x)
        if x.numel():
            source.twice[blocks(x.numel()), 128](x, y, x.numel())
        return y

    return op


def _row_sums(name: str, body: str, shared: Any = 0) -> opsmith.Op:
    """x.sum(-1), a block of 64 threads for each row."""
    op = opsmith.op(name)(row_sums)
    samples(op, _rows, (5, 60), (3, 200))
    source = opsmith.cuda_source(
        'extern "C" __global__ void sum(const float* __restrict__ x, float* __restrict__ y, int columns) {\n'
        f"{body}}}\n"
    )

    @op.register_kernel("cuda")
    def _(x: Tensor) -> Tensor:
        if x.dtype is not torch.float32 or x.numel() == 0 or x.ndim == 0:
            return NotImplemented  # type: ignore[no-any-return]
        y = x.new_empty(x.shape[:-1])
        source.sum[y.numel(), 64, shared](x, y, x.shape[-1])
        return y

    return op


INDEX = "  const long long i = blockIdx.x * 128ll + threadIdx.x;\n"
TREE = """\
  for (int half = 32; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = partial[0];
"""
OWN = """\
  float own = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 64) own += x[blockIdx.x * static_cast<long long>(columns) + i];
"""


@mutation("cuda", *FINDERS, where="emulated")
def bounds_check_missing(name: str) -> opsmith.Op:
    """The last block goes beyond the tensor: an allocator's padding hides it."""
    return _doubled(name, INDEX + "  y[i] = 2.0f * x[i];\n")


@mutation("cuda", *FINDERS, where="emulated")
def one_element_too_far(name: str) -> opsmith.Op:
    """<= for <."""
    return _doubled(name, INDEX + "  if (i <= n) y[i] = 2.0f * x[i];\n")


@mutation("cuda", *FINDERS, where="emulated")
def grid_rounded_down(name: str) -> opsmith.Op:
    """n / threads blocks: the rest is never written."""
    return _doubled(name, INDEX + "  if (i < n) y[i] = 2.0f * x[i];\n", lambda n: max(n // 128, 1))


@mutation("cuda", *FINDERS, where="emulated")
def vectors_of_four_without_a_rest(name: str) -> opsmith.Op:
    """float4 loads over a length that is not a multiple of four."""
    body = """\
  const long long i = 4 * (blockIdx.x * 128ll + threadIdx.x);
  if (i < n) {
    const float4 v = *reinterpret_cast<const float4*>(x + i);
    *reinterpret_cast<float4*>(y + i) = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
  }
"""
    return _doubled(name, body)


@mutation("cuda", *FINDERS, where="emulated")
def barrier_forgotten(name: str) -> opsmith.Op:
    """Between writing the partial sums and reading them nothing waits."""
    body = "  __shared__ float partial[64];\n" + OWN + "  partial[threadIdx.x] = own;\n" + TREE
    return _row_sums(name, body)


@mutation("cuda", *FINDERS, where="emulated")
def shared_memory_not_zeroed(name: str) -> opsmith.Op:
    """Shared memory is taken to begin at zero."""
    body = "  __shared__ float partial[64];\n" + OWN + "  partial[threadIdx.x] += own;\n  __syncthreads();\n" + TREE
    return _row_sums(name, body)


@mutation("cuda", *FINDERS, where="emulated")
def shared_memory_too_small(name: str) -> opsmith.Op:
    """Bytes are given where floats were meant."""
    body = "  extern __shared__ float partial[];\n" + OWN + "  partial[threadIdx.x] = own;\n  __syncthreads();\n" + TREE
    return _row_sums(name, body, shared=64)


@mutation("cuda", *FINDERS, where="emulated")
def atomic_without_a_start(name: str) -> opsmith.Op:
    """The sum is added to memory that is not set to zero."""
    return _row_sums(name, OWN + "  atomicAdd(&y[blockIdx.x], own);\n")


@mutation("cuda", *FINDERS, where="emulated")
def shuffle_for_half_a_warp(name: str) -> opsmith.Op:
    """A reduction over a warp that begins at 8: sixteen lanes are left out."""
    body = (
        OWN
        + """\
  for (int offset = 8; offset > 0; offset /= 2) own += __shfl_down_sync(0xffffffffu, own, offset);
  __shared__ float partial[2];
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = partial[0] + partial[1];
"""
    )
    return _row_sums(name, body)


@mutation("cuda", *FINDERS, where="emulated")
def barrier_in_a_branch(name: str) -> opsmith.Op:
    """Half of the block waits at a barrier that the others do not reach."""
    body = (
        "  __shared__ float partial[64];\n" + OWN + "  partial[threadIdx.x] = own;\n  __syncthreads();\n"
        "  for (int half = 32; half > 0; half /= 2) {\n"
        "    if (threadIdx.x < half) {\n"
        "      partial[threadIdx.x] += partial[threadIdx.x + half];\n"
        "      __syncthreads();\n"
        "    }\n"
        "  }\n"
        "  if (threadIdx.x == 0) y[blockIdx.x] = partial[0];\n"
    )
    return _row_sums(name, body)
