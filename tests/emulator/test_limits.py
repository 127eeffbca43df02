"""What a GPU refuses to launch, the emulator refuses in the same words: blocks and shared memory beyond the limits."""

from __future__ import annotations

import re

import pytest
import torch

import opsmith
from opsmith.errors import LaunchConfigurationError, NvrtcNotFoundError
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
