"""What a GPU refuses to launch, the emulator refuses in the same words: blocks and shared memory beyond the limits."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

import opsmith
from opsmith.errors import LaunchConfigurationError, NvrtcNotFoundError
from opsmith.kernels import emulation
from opsmith.launch.gpu import Gpu
from opsmith.toolchain import find_nvrtc

BOUNDS = opsmith.cuda_source(r"""
#define THREADS 128
constexpr int twice(int n) { return 2 * n; }
struct Config { static constexpr int threads = 64; };
template <class A, class B> struct Pair { static constexpr int threads = 96; };
__global__ void __launch_bounds__(THREADS) by_macro(float* x) { x[threadIdx.x] = 1.0f; }
__global__ __launch_bounds__(twice(32), 2) void by_function(float* x) { x[threadIdx.x] = 1.0f; }
__global__ void __launch_bounds__(Pair<int, float>::threads, 1) by_template_class(float* x) { x[threadIdx.x] = 1.0f; }
__global__ void unbounded(float* x) { x[threadIdx.x] = 1.0f; }
namespace layers {
constexpr int kThreads = 32;
__global__ void __launch_bounds__(kThreads) in_namespace(float* x) { x[threadIdx.x] = 1.0f; }
template <typename T, int WARPS = 2>
__global__ void __launch_bounds__(WARPS * kThreads) of_template(T* x) { x[threadIdx.x] = T(1); }
}  // namespace layers
__global__ void declared_before(float* x);
__global__ void __launch_bounds__(Config::threads) declared_before(float* x) { x[threadIdx.x] = 1.0f; }
""")
ALLOWED = {
    "by_macro": 128, "by_function": 64, "by_template_class": 96, "layers::in_namespace": 32,
    "layers::of_template<float>": 64, "layers::of_template<float, 4>": 128, "declared_before": 64, "unbounded": 1024,
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
@pytest.mark.parametrize("checks", [True, False])
def test_a_block_is_no_larger_than_the_launch_bounds_allow(name: str, checks: bool) -> None:
    kernel, threads, x = BOUNDS[name], ALLOWED[name], torch.zeros(1024)
    with opsmith.emulate(checks=checks):
        kernel[1, threads](x)
        assert x.sum() == threads
        if threads == 1024:
            return
        words = f"a block of {threads + 1} threads is more than the {threads} that this kernel can have.*launch_bounds"
        with pytest.raises(LaunchConfigurationError, match=words):
            kernel[1, threads + 1](x)
        with pytest.raises(LaunchConfigurationError, match=f"{2 * threads} threads"):
            kernel[1, (threads, 2)](x)


CLUSTERS = opsmith.cuda_source(r"""
#define BLOCKS 2
constexpr int twice(int n) { return 2 * n; }
namespace layers { constexpr int kBlocks = 4; }
__global__ void __cluster_dims__(BLOCKS, 1, 1) by_macro(int* y) { y[blockIdx.x] = __clusterSizeInBlocks(); }
__global__ __cluster_dims__(twice(4)) void by_function(int* y) { y[blockIdx.x] = __clusterSizeInBlocks(); }
__cluster_dims__(2, 2) __global__ void __launch_bounds__(32) of_two_dimensions(int* y) {
  y[blockIdx.x + gridDim.x * blockIdx.y] = __clusterSizeInBlocks();
}
namespace layers {
template <int N>
__global__ void __cluster_dims__(N * kBlocks) of_template(int* y) { y[blockIdx.x] = __clusterSizeInBlocks(); }
}  // namespace layers
__global__ void any(int* y) { y[blockIdx.x] = __clusterSizeInBlocks(); }
""")


@pytest.mark.parametrize(
    ("name", "grid", "cluster", "blocks"),
    [
        ("by_macro", 4, None, 2), ("by_macro", 4, 2, 2), ("by_function", 16, None, 8), ("any", 6, None, 1),
        ("of_two_dimensions", (4, 2), None, 4), ("layers::of_template<1>", 8, None, 4),
        ("layers::of_template<4>", 16, None, 16), ("any", 6, 3, 3), ("any", (4, 1, 1), (4, 1, 1), 4),
        ("any", 32, 16, 16),
    ],
)  # fmt: skip
@pytest.mark.parametrize("checks", [True, False])
def test_a_cluster_has_the_blocks_that_the_kernel_or_the_launch_says(
    name: str, grid: Any, cluster: Any, blocks: int, checks: bool
) -> None:
    y = torch.zeros(32, dtype=torch.int32)
    with opsmith.emulate(checks=checks):
        CLUSTERS[name][grid, 1, 0, cluster](y)
    assert set(y[y != 0].tolist()) == {blocks}
    assert len(y[y != 0]) == math.prod(grid if isinstance(grid, tuple) else (grid,))


@pytest.mark.parametrize(
    ("name", "grid", "cluster", "words"),
    [
        (
            "by_macro",
            3,
            None,
            "the grid is 3, which is not a whole number of clusters of 2. Launch 4, and let the blocks",
        ),
        ("of_two_dimensions", (4, 3), None, "the grid is (4, 3), which is not a whole number of clusters of (2, 2)"),
        ("by_macro", 4, 4, "the launch has clusters of 4, and the kernel is declared with __cluster_dims__ 2"),
        ("layers::of_template<8>", 32, None, "a cluster of 32 has 32 blocks, and sm_90 allows 16"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(name: str, grid: Any, cluster: Any, words: str) -> None:
    with opsmith.emulate(), pytest.raises(LaunchConfigurationError, match=re.escape(words)):
        CLUSTERS[name][grid, 1, 0, cluster](torch.zeros(32, dtype=torch.int32))


def test_a_gpu_without_clusters_is_distinguished_from_one_with_them() -> None:
    y = torch.zeros(8, dtype=torch.int32)
    with opsmith.emulate(), emulation.entered(emulation.Settings(gpu=Gpu("A100", "sm_80", 108, 163 << 10))):
        CLUSTERS.any[8, 1](y)
        with pytest.raises(LaunchConfigurationError, match="clusters need sm_90 or later, and this GPU is sm_80"):
            CLUSTERS.by_macro[8, 1](y)


SHARED = opsmith.cuda_source(r"""
extern __shared__ float dynamic[];
__device__ float borrowed(const float* x) {
  __shared__ float scratch[10 * 1024];  // 40 KiB
  scratch[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  return scratch[threadIdx.x];
}
__device__ __noinline__ float twice_removed(const float* x) { return 2 * borrowed(x); }
__global__ void at_the_limit(const float* x, float* y) {
  __shared__ float tile[12 * 1024];  // 48 KiB
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void beyond_the_limit(const float* x, float* y) {
  __shared__ float tile[12 * 1024], more[1];
  if (threadIdx.x == 0) more[0] = x[0];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x] + more[0];
}
__global__ void by_what_it_calls(const float* x, float* y) {
  __shared__ float tile[3 * 1024];  // 12 KiB
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x] + twice_removed(x);
}
__global__ void only_dynamic(const float* x, float* y) {
  dynamic[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = dynamic[threadIdx.x];
}
__global__ void both(const float* x, float* y) {
  y[threadIdx.x] = twice_removed(x);
  dynamic[threadIdx.x] = x[threadIdx.x];
}
template <int FLOATS>
__global__ void of_template(const float* x, float* y) {
  __shared__ float tile[FLOATS];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}
""")
KIB = 1024


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("at_the_limit", 0), ("at_the_limit", 179 * KIB), ("only_dynamic", 227 * KIB), ("both", 187 * KIB),
        ("of_template<12288>", 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("checks", [True, False])
def test_a_block_has_up_to_227_kib_of_shared_memory(name: str, shared: int, checks: bool) -> None:
    x, y = torch.arange(32.0), torch.zeros(32)
    with opsmith.emulate(checks=checks):
        SHARED[name][1, 32, shared](x, y)
    assert torch.equal(y, (2 if name == "both" else 1) * x)


@pytest.mark.parametrize(
    ("name", "shared", "words"),
    [
        ("beyond_the_limit", 0, "static __shared__ variables take 49156 bytes (tile 49152, more 4)"),
        ("by_what_it_calls", 0, "static __shared__ variables take 53248 bytes (scratch 40960, tile 12288)"),
        ("of_template<12289>", 0, "static __shared__ variables take 49156 bytes (tile 49156)"),
        ("at_the_limit", 179 * KIB + 1, "a block requests 232449 bytes of shared memory, of which the kernel itself "
         "declares 49152; an H100 or H200 has 232448 per block"),
        ("only_dynamic", 227 * KIB + 1, "a block requests 232449 bytes of shared memory; an H100"),
        ("both", 188 * KIB, "233472 bytes of shared memory, of which the kernel itself declares 40960"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("checks", [True, False])
def test_more_is_refused_with_the_sum(name: str, shared: int, words: str, checks: bool) -> None:
    with opsmith.emulate(checks=checks), pytest.raises(LaunchConfigurationError, match=re.escape(words)):
        SHARED[name][1, 32, shared](torch.zeros(32), torch.zeros(32))


def test_the_static_sums_are_those_of_ptxas() -> None:
    try:
        find_nvrtc()
    except NvrtcNotFoundError as error:
        pytest.skip(f"NVRTC is not installed: {error}")
    text = SHARED._current().text
    fits = text[: text.index("__global__ void beyond_the_limit")] + text[text.index("__global__ void only_dynamic") :]
    attributes = opsmith.cuda_source(fits).compile(arch="sm_90").attributes
    assert {name: each.shared_bytes for name, each in attributes.items()} == {
        "at_the_limit": 48 * KIB, "only_dynamic": 0, "both": 40 * KIB,
    }  # fmt: skip
    with pytest.raises(opsmith.errors.CompileError, match="too much shared data"):
        SHARED.compile(arch="sm_90")
