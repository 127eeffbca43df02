"""What else a kernel may include: cuda::atomic, named numbers, cuda::std; and the headers that are refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy
import pytest

from .header_harness import INCLUDE, Faulted, Library, compile_text

OUT_OF_BOUNDS, INACTIVE_LANE, RACE = 1, 6, 7


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Library]:
    directory = tmp_path_factory.mktemp("headers")
    return lambda text, checks=True: Library(text, directory, checks=checks)


# --- Atomic operations, named numbers --------------------------------------------------------------------------------

ATOMICS = """
#include <cuda/atomic>
#include <cuda/std/atomic>
__global__ void operations(int* x, float* y, unsigned long long* z, int* before) {
  using device = cuda::atomic_ref<int, cuda::thread_scope_device>;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  before[i] = device(x[0]).fetch_add(1);
  device(x[1]).fetch_sub(2, cuda::memory_order_relaxed);
  device(x[2]).fetch_min(-i);
  device(x[3]).fetch_max(i);
  device(x[4]).fetch_or(1 << i % 16);
  device(x[5]).fetch_xor(1 << i % 16);
  ++device(x[6]);
  int old = device(x[7]).load(cuda::std::memory_order_relaxed);
  while (!device(x[7]).compare_exchange_weak(old, old + 3)) {
  }
  if (i == 5) device(x[8]).store(i, cuda::memory_order_release);
  cuda::atomic_ref<float>(y[0]) += 0.5f;
  cuda::std::atomic_ref<unsigned long long>(z[0]).fetch_and(~(1ull << i));
}
__global__ void in_shared_memory(int* out) {
  __shared__ cuda::atomic<int, cuda::thread_scope_block> count;
  if (threadIdx.x == 0) count = 10;
  __syncthreads();
  count.fetch_add(2);
  __syncthreads();
  if (threadIdx.x == 0) out[0] = count;
}
// The second block reads what the first has written, when the flag says so.
template <cuda::std::memory_order RELEASE>
__device__ void hand_over(int* data, int* flag, int* out) {
  cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
  if (blockIdx.x == 0) {
    data[0] = 42;
    ready.store(1, RELEASE);
  } else {
    while (ready.load(cuda::memory_order_acquire) == 0) __nanosleep(10);
    out[0] = data[0];
  }
}
__global__ void released(int* data, int* flag, int* out) { hand_over<cuda::memory_order_release>(data, flag, out); }
__global__ void relaxed(int* data, int* flag, int* out) { hand_over<cuda::memory_order_relaxed>(data, flag, out); }
"""


@pytest.fixture(scope="module")
def atomics(build: Callable[..., Library]) -> Library:
    return build(ATOMICS)


def test_cuda_atomic_ref_loses_nothing(atomics: Library) -> None:
    x, y = numpy.zeros(9, numpy.int32), numpy.zeros(1, numpy.float32)
    z, before = numpy.array([2**64 - 1], numpy.uint64), numpy.zeros(64, numpy.int32)
    atomics("operations", 2, 32, x, y, z, before)
    assert x.tolist() == [64, -128, -63, 63, 2**16 - 1, 0, 64, 192, 5]
    assert y[0] == 32 and z[0] == 0 and sorted(before) == list(range(64))


def test_cuda_atomic_lives_in_shared_memory(atomics: Library) -> None:
    out = numpy.zeros(1, numpy.int32)
    atomics("in_shared_memory", 1, 64, out)
    assert out[0] == 10 + 2 * 64


def test_a_release_hands_over_what_was_written_and_a_relaxed_store_does_not(atomics: Library) -> None:
    data, flag, out = (numpy.zeros(1, numpy.int32) for _ in range(3))
    atomics("released", 2, 1, data, flag, out)
    assert out[0] == 42
    data, flag, out = (numpy.zeros(1, numpy.int32) for _ in range(3))
    with pytest.raises(Faulted) as fault:
        atomics("relaxed", 2, 1, data, flag, out)
    assert fault.value.kind == RACE


def test_named_numbers_are_the_nearest_to_what_they_name(build: Callable[..., Library]) -> None:
    e, pi = math.e, math.pi
    named = {
        "INF": math.inf, "NAN": math.nan, "MIN_DENORM": 5e-324, "NEG_ZERO": -0.0, "ZERO": 0.0, "ONE": 1.0,
        "SQRT_HALF": math.sqrt(0.5), "SQRT_TWO": math.sqrt(2), "THIRD": 1 / 3, "PIO4": pi / 4, "PIO2": pi / 2,
        "3PIO4": float(Fraction(pi) * 3 / 4), "PI": pi, "2_OVER_PI": 2 / pi, "L2E": math.log2(e),
        "L2T": math.log2(10), "LG2": math.log10(2), "LGE": math.log10(e), "LN2": math.log(2), "LNT": math.log(10),
        "LNPI": math.log(pi),
    }  # fmt: skip
    put = "".join(f"  x[{i}] = CUDART_{name};\n  y[{i}] = CUDART_{name}_F;\n" for i, name in enumerate(named))
    library = build("#include <math_constants.h>\n__global__ void all(double* x, float* y) {\n" + put + "}\n")
    x, y = numpy.zeros(len(named)), numpy.zeros(len(named), numpy.float32)
    library("all", 1, 1, x, y)
    wanted = numpy.array(list(named.values()))
    numpy.testing.assert_allclose(x, wanted, rtol=2.3e-16, atol=0)
    narrow = wanted.astype(numpy.float32)
    narrow[list(named).index("MIN_DENORM")] = 2.0**-149
    numpy.testing.assert_array_equal(y, narrow)
    assert numpy.signbit(x[3]) and numpy.signbit(y[3])


# --- Faults ----------------------------------------------------------------------------------------------------------

FAULTS = """#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda/atomic>
namespace cg = cooperative_groups;
__global__ void load(const __half* x, __half* y) {
  y[threadIdx.x] = x[threadIdx.x] * __float2half(2.0f);
}
__global__ void convert(const __half2* x, float* y) {
  y[threadIdx.x] = x[0].x;
  y[threadIdx.x] = x[threadIdx.x].y;
}
__global__ void accumulate(__half* x, __half* y) {
  y[threadIdx.x] += x[threadIdx.x];
}
__global__ void add(__half* x, __half* y) {
  atomicAdd(x + threadIdx.x, y[0]);
}
__global__ void add_reference(int* x, int* y) {
  cuda::atomic_ref<int, cuda::thread_scope_device>(x[threadIdx.x]).fetch_add(y[0]);
}
__global__ void shuffle(const int* x, int* y) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  if (threadIdx.x < 8)
    y[threadIdx.x] = tile.shfl(x[0], 9);
}
"""


@pytest.mark.parametrize(
    ("kernel", "line", "kind", "threads"),
    [
        ("load", 6, OUT_OF_BOUNDS, 9), ("convert", 10, OUT_OF_BOUNDS, 9), ("accumulate", 13, OUT_OF_BOUNDS, 9),
        ("add", 16, OUT_OF_BOUNDS, 9), ("add_reference", 19, OUT_OF_BOUNDS, 9), ("shuffle", 24, INACTIVE_LANE, 32),
    ],
)  # fmt: skip
def test_a_fault_in_a_header_is_laid_at_the_authors_line(
    faults: Library, kernel: str, line: int, kind: int, threads: int
) -> None:
    wide = 4 if kernel in ("convert", "add_reference", "shuffle") else 2
    x = numpy.zeros(8 * wide, numpy.uint8)
    with pytest.raises(Faulted) as fault:
        faults(kernel, 1, threads, x, numpy.zeros(128, numpy.uint8))
    assert fault.value.kind == kind and line in fault.value.lines


@pytest.fixture(scope="module")
def faults(build: Callable[..., Library]) -> Library:
    return build(FAULTS)


# --- What can be included --------------------------------------------------------------------------------------------

HEADERS = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*") if path.is_file())
REFUSED = [name for name in HEADERS if "#error" in (INCLUDE / name).read_text()]
INTERNAL = [name for name in HEADERS if "opsmith" in Path(name).name]


def test_headers_can_be_included_in_any_order_and_twice() -> None:
    names = [name for name in HEADERS if name not in REFUSED and name not in INTERNAL]
    assert {"cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h", "cuda/std/array", "cuda_runtime.h"} <= set(names)
    text = "".join(f"#include <{name}>\n" for name in [*names, *reversed(names)])
    text += "static_assert(cuda::std::is_same_v<cuda::std::int32_t, int>); cuda::std::array<float4, 2> pair;\n"
    text += "cudaStream_t stream = nullptr; CUdeviceptr pointer = 0; cudaError_t error = cudaSuccess;\n"
    compiled = compile_text(text, "-fsyntax-only", "-Wall", "-Wextra", "-Werror")
    assert compiled.returncode == 0, compiled.stderr


def test_headers_of_what_is_not_emulated_are_refused_by_name() -> None:
    named = {
        "mma.h", "cuda_fp8.h", "cuda_pipeline.h", "cuda/pipeline", "cuda/barrier", "cooperative_groups/memcpy_async.h",
        "cub/cub.cuh", "curand_kernel.h",
    }  # fmt: skip
    assert named <= set(REFUSED)
    compiled = compile_text("".join(f"#include <{name}>\n" for name in REFUSED), "-fsyntax-only")
    assert compiled.returncode != 0
    for name in REFUSED:
        assert re.search(rf"opsmith's emulator does not run [^()]+ \({re.escape(name)}\)", compiled.stderr), name


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("cg::this_grid().sync()", r"barriers of the whole grid \(grid_group::sync\)"),
        ("cg::sync(cg::this_grid())", r"barriers of the whole grid \(grid_group::sync\)"),
        ("cg::tiled_partition<64>(cg::this_thread_block())", "tiles of several warps"),
        ("cg::this_thread_block().barrier_arrive()", "barriers in two steps"),
        ("char x = 0; cuda::atomic_ref<char>(x).load()", "atomic operations on types of other sizes"),
    ],
)
def test_what_a_header_has_no_emulation_of_is_refused_by_name(statement: str, words: str) -> None:
    text = "#include <cooperative_groups.h>\n#include <cuda/atomic>\nnamespace cg = cooperative_groups;\n"
    compiled = compile_text(f"{text}__global__ void kernel() {{ {statement}; }}", "-fsyntax-only")
    assert compiled.returncode != 0 and re.search(f"opsmith's emulator does not run {words}", compiled.stderr)
