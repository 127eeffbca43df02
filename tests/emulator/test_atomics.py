"""Atomic operations on vectors, on 16 bits and on 16 bytes: nothing is lost, whichever worker a block runs on."""

from __future__ import annotations

import pytest
import torch

import opsmith

ATOMICS = opsmith.cuda_source(r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__global__ void vectors(float2* two, float4* four, float4* before) {
  const float i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(two, make_float2(1.0f, i));
  atomicAdd_system(two + 1, make_float2(-1.0f, 2.0f));
  before[(int)i] = atomicAdd(four, make_float4(1.0f, 2.0f, 3.0f, 4.0f));
}
__global__ void halves(__half* a, __half2* b, __nv_bfloat16* c, __nv_bfloat162* d) {
  atomicAdd(a, __float2half(1.0f));
  atomicAdd(b, __floats2half2_rn(1.0f, 0.5f));
  atomicAdd(c, __float2bfloat16(1.0f));
  atomicAdd(d, __floats2bfloat162_rn(1.0f, 0.5f));
}
__global__ void shorts(unsigned short* sum) {  // each half of a word has its own sum
  unsigned short old = *(volatile unsigned short*)(sum + threadIdx.x % 2), found;
  while ((found = atomicCAS(sum + threadIdx.x % 2, old, (unsigned short)(old + 1))) != old) old = found;
}
struct alignas(16) Pair { long long count, total; };
__device__ bool operator!=(const Pair& a, const Pair& b) { return a.count != b.count || a.total != b.total; }
__global__ void pairs(Pair* pair, int n) {  // both numbers change together, or neither
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  Pair old = {0, 0}, found;
  while ((found = atomicCAS(pair, old, Pair{old.count + 1, old.total + i})) != old) old = found;
}
__global__ void swapped(Pair* pair, Pair* before) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  before[i] = atomicExch(pair, Pair{i, -i});
}
__global__ void misaligned(float* x) { atomicAdd((float4*)(x + 1), make_float4(1.0f, 1.0f, 1.0f, 1.0f)); }
__global__ void beyond(float4* x) { atomicAdd(x + threadIdx.x, make_float4(1.0f, 1.0f, 1.0f, 1.0f)); }
""")


@pytest.mark.parametrize("checks", [True, False])
def test_sums_of_vectors_and_of_half_types_lose_nothing(checks: bool) -> None:
    two, four, before = torch.zeros(2, 2), torch.zeros(1, 4), torch.zeros(256, 4)
    a, b = torch.zeros(1, dtype=torch.float16), torch.zeros(2, dtype=torch.float16)
    c, d = torch.zeros(1, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)
    with opsmith.emulate(checks=checks):
        ATOMICS.vectors[4, 64](two, four, before)
        ATOMICS.halves[4, 64](a, b, c, d)
    assert two.tolist() == [[256, 255 * 128], [-256, 512]] and four.tolist() == [[256, 512, 768, 1024]]
    assert sorted(before[:, 0].tolist()) == list(range(256))
    assert torch.equal(before, before[:, :1] * torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert [*a.tolist(), *b.tolist(), *c.tolist(), *d.tolist()] == [256, 256, 128, 256, 256, 128]


@pytest.mark.parametrize("checks", [True, False])
def test_compare_and_swap_works_on_2_and_on_16_bytes(checks: bool) -> None:
    sums, pair = torch.zeros(2, dtype=torch.uint16), torch.zeros(2, dtype=torch.int64)
    before = torch.zeros(128, 2, dtype=torch.int64)
    with opsmith.emulate(checks=checks):
        ATOMICS.shorts[4, 64](sums)
        ATOMICS.pairs[4, 64](pair.view(torch.uint8), 256)
        assert pair.tolist() == [256, 255 * 128]
        pair.zero_()
        ATOMICS.swapped[2, 64](pair.view(torch.uint8), before.view(torch.uint8))
    assert sums.tolist() == [128, 128]
    seen = sorted([*before[:, 0].tolist(), int(pair[0])])
    assert seen == [0, *range(128)] and torch.equal(before[:, 1], -before[:, 0])


@pytest.mark.parametrize(("name", "kind"), [("misaligned", "misaligned access"), ("beyond", "out of bounds")])
def test_vectors_are_checked_as_a_whole(name: str, kind: str) -> None:
    with opsmith.emulate(), pytest.raises(opsmith.KernelFault) as caught:
        ATOMICS[name][1, 3](torch.zeros(8))
    assert caught.value.kind == kind
