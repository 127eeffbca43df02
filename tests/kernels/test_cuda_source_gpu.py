"""cuda_source on a GPU: values, streams, threads, graphs, constants, shared memory, edits, limits."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import errors
from opsmith.launch.driver import MAX_SHARED_BYTES_OPT_IN, driver

pytestmark = pytest.mark.gpu

TEXT = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
struct Line { float slope; double offset; };
template <class T> struct Wide { using type = float; };
template <> struct Wide<double> { using type = double; };
__constant__ float coefficients[4];

template <typename T, int N>
__global__ void scale(const T* __restrict__ x, T* __restrict__ y, typename Wide<T>::type factor, long long count) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = static_cast<T>(static_cast<typename Wide<T>::type>(x[i]) * factor * N);
}
__global__ void twice(const float* x, float* y, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = 2 * x[i];
}
__global__ void cubic(const float* x, float* y, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = ((coefficients[0] * x[i] + coefficients[1]) * x[i] + coefficients[2]) * x[i] + coefficients[3];
}
template <typename T> __global__ void constant_of(T* y) { y[threadIdx.x] = T(coefficients[threadIdx.x]); }
__global__ void reversed(const float* x, float* y, int count) {  // by one block, all of it in shared memory
  extern __shared__ float kept[];
  for (int i = threadIdx.x; i < count; i += blockDim.x) kept[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) y[i] = kept[count - 1 - i];
}
__global__ void gathered(const float* x, float* y, long rows, long columns, long row_stride, long column_stride) {
  const long i = blockIdx.x, j = threadIdx.x;
  if (i < rows && j < columns) y[i * columns + j] = x[i * row_stride + j * column_stride];
}
__global__ void by_value(double* out, signed char a, unsigned short b, bool c, __half d, __nv_bfloat16 e, float4 f,
                         Line line, unsigned long long g, float h) {
  const double found[] = {double(a), double(b), double(c), double(float(d)), double(float(e)), f.x, f.y, f.z, f.w,
                          line.slope, line.offset, double(g), h};
  for (int i = 0; i < 13; ++i) out[i] = found[i];
}
__global__ void __launch_bounds__(64) small(float* x) { x[threadIdx.x] = 1; }
__global__ void with_static(float* x) { __shared__ float s[512]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
  x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x]; }
__global__ void idle(float* x, float* y, int n, int m) {}
"""


@pytest.fixture(scope="module")
def cu() -> Any:
    return opsmith.cuda_source(TEXT)


def another() -> Any:
    """A source that nothing of has been loaded in this process."""
    return opsmith.cuda_source(TEXT)


def blocks(count: int) -> int:
    return -(-count // 256)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.float32, "float"),
        (torch.float64, "double"),
        (torch.float16, "__half"),
        (torch.bfloat16, "__nv_bfloat16"),
        (torch.int32, "int"),
        (torch.int64, "long long"),
    ],
)
def test_values_of_templates(cu: Any, dtype: torch.dtype, name: str) -> None:
    x = torch.randn(1000, device="cuda").mul(10).to(dtype)
    y = torch.empty_like(x)
    cu[f"scale<{name}, 3>"][blocks(1000), 256](x, y, 2.0, x.numel())
    torch.testing.assert_close(y, x * 6)


def test_numbers_vectors_and_structs_arrive_as_declared(cu: Any) -> None:
    class Line(ctypes.Structure):
        _fields_ = (("slope", ctypes.c_float), ("offset", ctypes.c_double))

    out = torch.zeros(13, device="cuda", dtype=torch.float64)
    cu.by_value[1, 1](out, -100, 65535, True, 0.1, 0.1, (1, 2, 3, 4), Line(0.5, 1e300), 2**53, 3)
    half, brain = (torch.tensor(0.1, dtype=t).item() for t in (torch.float16, torch.bfloat16))
    assert out.tolist() == [-100, 65535, 1, half, brain, 1, 2, 3, 4, 0.5, 1e300, 2.0**53, 3]


def test_strides_that_are_passed_are_the_kernels_business(cu: Any) -> None:
    x = torch.randn(20, 30, device="cuda")[::2, 1::3]
    y = torch.empty(x.shape, device="cuda")
    cu.gathered[x.shape[0], x.shape[1]](x, y, *x.shape, *x.stride())
    assert torch.equal(x, y)
    with pytest.raises(errors.KernelValueError, match="not contiguous"):
        cu.gathered[x.shape[0], x.shape[1]](x, y, *x.shape, 1, 1)


def test_work_goes_to_the_current_stream_and_nothing_is_waited_for(cu: Any) -> None:
    x, y = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    cu.twice[blocks(x.numel()), 256](x, y, x.numel())
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(400_000_000)  # a fifth of a second: work on another stream would read x too early
        x.fill_(3.0)
        start = time.perf_counter()
        cu.twice[blocks(x.numel()), 256](x, y, x.numel())
        taken = time.perf_counter() - start
        assert not stream.query(), "the launch returned before the stream was done"
    assert taken < 0.1
    stream.synchronize()
    assert bool((y == 6).all())


def test_any_thread_launches(cu: Any) -> None:
    x, y = torch.arange(512.0, device="cuda"), torch.empty(512, device="cuda")
    source = another()

    def launch() -> None:
        cu.twice[2, 256](x, y, 512)  # loaded before, by another thread perhaps
        source.twice[2, 256](y, y, 512)  # loaded here
        torch.cuda.synchronize()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(launch).result()
    assert torch.equal(y, 4 * x)

    def many(number: int) -> bool:
        mine = torch.full((512,), float(number), device="cuda")
        for _ in range(200):
            cu.twice[2, 256](mine, mine, 512)
            cu["scale<float, 1>"][2, 256](mine, mine, 0.5, 512)
        return bool((mine == number).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(many, range(1, 9)))


@pytest.mark.parametrize("ahead", ["loaded", "compiled", "nothing"])
def test_captured_in_a_graph_and_replayed(ahead: str) -> None:
    cu = another()
    x, y, z = (torch.zeros(1000, device="cuda") for _ in range(3))
    cu.set_constant("coefficients", [0.0, 0.0, 1.0, 5.0])

    def work() -> None:
        cu.twice[4, 256](x, y, 1000)
        cu["scale<float, 7>"][4, 256](y, z, 1.0, 1000)
        cu.cubic[4, 256](z, z, 1000)

    if ahead == "loaded":
        work()
    elif ahead == "compiled":
        cu.compile()
        cu["scale<float, 7>"].compile()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    for value in (1.0, 2.0):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert bool((z == 14 * value + 5).all())


def test_an_edit_waits_until_a_capture_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text("__global__ void k(int* x) { *x = 1; }\n")
    cu = opsmith.cuda_source(path)
    x = torch.zeros(1, device="cuda", dtype=torch.int32)
    cu.k[1, 1](x)
    path.write_text("__global__ void k(int* x) { *x = 2; }\n")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cu.k[1, 1](x)
    cu.k[1, 1](x)
    assert x.item() == 2
    graph.replay()
    assert x.item() == 1


def test_an_edit_of_source_and_header_is_noticed_in_one_process(tmp_path: Path) -> None:
    path, header = tmp_path / "k.cu", tmp_path / "value.h"
    header.write_text("#define VALUE 1\n")
    path.write_text('#include "value.h"\n__global__ void k(int* x) { *x = VALUE; }\n')
    cu = opsmith.cuda_source(path)
    x = torch.zeros(1, device="cuda", dtype=torch.int32)
    found = []
    for file, text in (
        (None, ""),
        (header, "#define VALUE 2\n"),
        (path, '#include "value.h"\n__global__ void k(int* x) { *x = 10 * VALUE; }\n'),
        (header, "#define VALUE 3\n"),
    ):
        if file is not None:
            file.write_text(text)
        cu.k[1, 1](x)
        found.append(x.item())
    assert found == [1, 2, 20, 30]


def test_constants_reach_every_kernel_loaded_before_or_after() -> None:
    cu = another()
    x, y = torch.linspace(-2, 2, 100, device="cuda"), torch.empty(100, device="cuda")
    cu.set_constant("coefficients", [1, 2, 3, 4])
    cu.cubic[1, 128](x, y, 100)
    torch.testing.assert_close(y, x**3 + 2 * x**2 + 3 * x + 4)
    values = torch.tensor([5.0, 6, 7, 8], device="cuda")
    cu.set_constant("coefficients", values)
    values.zero_()
    cu.cubic[1, 128](x, y, 100)
    torch.testing.assert_close(y, 5 * x**3 + 6 * x**2 + 7 * x + 8)
    later = torch.empty(4, device="cuda", dtype=torch.float64)
    cu["constant_of<double>"][1, 4](later)
    assert later.tolist() == [5, 6, 7, 8]
    cu.set_constant("coefficients", torch.tensor([9.0, 10, 11, 12]))
    cu["constant_of<double>"][1, 4](later)
    assert later.tolist() == [9, 10, 11, 12]


def test_a_constant_is_set_in_the_order_of_the_stream() -> None:
    cu = another()
    found = [torch.empty(4, device="cuda") for _ in range(3)]
    kernel = cu["constant_of<float>"]
    kernel[1, 4](found[0])
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        for number, each in enumerate(found):
            cu.set_constant("coefficients", [float(number)] * 4)
            kernel[1, 4](each)
    torch.cuda.synchronize()
    assert [each.tolist() for each in found] == [[float(number)] * 4 for number in range(3)]


def test_shared_memory_beyond_48_kibibytes(cu: Any) -> None:
    limit = driver().device_attribute(MAX_SHARED_BYTES_OPT_IN, 0)
    for size in (1 << 10, 48 << 10, 64 << 10, limit):
        if size > limit:
            continue
        count = size // 4
        x = torch.randn(count, device="cuda")
        y = torch.empty_like(x)
        cu.reversed[1, 1024, size](x, y, count)
        assert torch.equal(y, x.flip(0)), size
    with pytest.raises(errors.LaunchConfigurationError, match=f"{limit + 4} bytes of shared memory .* has {limit}\\."):
        cu.reversed[1, 32, limit + 4](x, y, count)


def test_attributes_of_the_driver_are_those_of_the_compiler(cu: Any) -> None:
    for kernel in (cu.twice, cu.small, cu.with_static, cu["scale<double, 2>"]):
        attributes, compiled = kernel.attributes, kernel.compile().attributes
        assert attributes.registers == compiled.registers > 0
        assert attributes.shared_bytes == compiled.shared_bytes
        assert attributes.max_threads_per_block == compiled.max_threads_per_block
        assert attributes.spill_bytes == compiled.spill_bytes == 0
    assert cu.small.attributes.max_threads_per_block == 64
    assert cu.with_static.attributes.shared_bytes == 2048
    assert cu.cubic.attributes.constant_bytes >= 16


def x_and_y() -> tuple[Tensor, Tensor]:
    return torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")


@pytest.mark.parametrize(
    ("launch", "error", "words"),
    [
        (lambda cu, x, y: cu.twice[1, 1](x, y), errors.KernelArgumentError, "takes 3 arguments"),
        (lambda cu, x, y: cu.twice[1, 1](x.double(), y, 8), errors.KernelArgumentError, "float32 tensor"),
        (lambda cu, x, y: cu.twice[1, 1](x.cpu(), y, 8), errors.KernelValueError, "on cpu"),
        (lambda cu, x, y: cu.twice[1, 1](x, y.cpu(), 8), errors.KernelValueError, "on cpu"),
        (lambda cu, x, y: cu.twice[1, 1](x.expand(3, 8).t(), y, 8), errors.KernelValueError, "not contiguous"),
        (lambda cu, x, y: cu.twice[1, 1](x, y, 2**31), errors.KernelValueError, "does not fit"),
        (lambda cu, x, y: cu.twice[1, 1](x, y, 8.0), errors.KernelArgumentError, "takes an int"),
        (lambda cu, x, y: cu.twice[1, 1](x, y, x.sum()), errors.KernelArgumentError, r"\.item\(\)"),
        (lambda cu, x, y: cu.twice[0, 1](x, y, 8), errors.LaunchConfigurationError, "empty tensor"),
        (lambda cu, x, y: cu.twice[1, 1025](x, y, 8), errors.LaunchConfigurationError, "at most 1024"),
        (lambda cu, x, y: cu.small[1, 65](x), errors.LaunchConfigurationError, "65 threads is more than the 64"),
        (lambda cu, x, y: cu.twice[1, 1, 1 << 20](x, y, 8), errors.LaunchConfigurationError, "shared memory"),
        (lambda cu, x, y: cu.scale[1, 1](x, y), errors.AmbiguousKernelError, "is a template"),
        (lambda cu, x, y: cu.no_such[1, 1](x, y), errors.KernelNotFoundError, "it has scale"),
        (lambda cu, x, y: cu.set_constant("coefficients", [1.0]), errors.ConstantError, "takes 4 numbers"),
    ],
)
def test_wrong_arguments_are_refused_and_the_gpu_stays_usable(
    cu: Any, launch: Callable[..., Any], error: type[Exception], words: str
) -> None:
    x, y = x_and_y()
    with pytest.raises(error, match=words):
        launch(cu, x, y)
    cu.twice[1, 8](x + 1, y, 8)
    assert bool((y == 2).all())


def test_what_the_driver_refuses_is_raised_at_the_launch() -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    cu = opsmith.cuda_source("__global__ void __launch_bounds__(32, 1, 2) k(int* x) { x[blockIdx.x] = 1; }")
    x = torch.zeros(4, device="cuda", dtype=torch.int32)
    with pytest.raises(errors.LaunchError, match="k: the launch with a grid of 4 in clusters of 4, blocks of 1 failed"):
        cu.k[4, 1, 0, 4](x)  # more blocks of a cluster than the kernel's bounds allow
    cu.k[4, 1, 0, 2](x)
    assert x.tolist() == [1] * 4


def test_a_grid_is_a_whole_number_of_clusters() -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    cu = opsmith.cuda_source("__global__ void __cluster_dims__(2, 1, 1) k(int* x) { x[blockIdx.x] = 1; }")
    x = torch.zeros(4, device="cuda", dtype=torch.int32)
    with pytest.raises(errors.LaunchConfigurationError, match=r"no whole number of clusters of 2\. Launch 4"):
        cu.k[3, 1](x)
    with pytest.raises(errors.LaunchConfigurationError, match="declared with __cluster_dims__ 2"):
        cu.k[4, 1, 0, 4](x)
    cu.k[4, 1](x)
    assert x.tolist() == [1] * 4


def test_the_tensors_device_counts_and_not_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    cu = another()
    cu.set_constant("coefficients", [0, 0, 3, 1])
    for index in (1, 0):
        for stream in (torch.cuda.default_stream(index), torch.cuda.Stream(index)):
            with torch.cuda.stream(stream), torch.cuda.device(1 - index):
                x = torch.ones(8, device=f"cuda:{index}")
                cu.cubic[1, 8](x, x, 8)
                assert torch.cuda.current_device() == 1 - index
            assert x.tolist() == [4] * 8
    with pytest.raises(errors.KernelValueError, match="on cuda:1, and the first"):
        cu.cubic[1, 8](torch.ones(8, device="cuda:0"), torch.ones(8, device="cuda:1"), 8)


def test_it_is_an_ops_kernel_forward_and_backward(fresh: Callable[[str], str], cu: Any) -> None:
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    op = opsmith.op(fresh("doubled"))(doubled)

    @op.register_kernel("cuda")
    def _(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        cu.twice[blocks(x.numel()), 256](x, y, x.numel())
        return y

    @op.register_backward("cuda")  # on autograd's own thread
    def _(grads: tuple[Tensor, ...], *, needs: Any) -> Tensor:
        grad = torch.empty_like(grads[0])
        cu.twice[blocks(grad.numel()), 256](grads[0], grad, grad.numel())
        return grad

    x = torch.randn(1000, device="cuda", requires_grad=True)
    for call in (op, torch.compile(lambda v: op(v), fullgraph=True)):
        y = call(x)
        torch.testing.assert_close(y, 2 * x)
        (grad,) = torch.autograd.grad(y, x, torch.full_like(y, 3.0))
        assert bool((grad == 6).all())
