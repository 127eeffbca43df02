"""Numba kernels as an op's: in Numba's simulator on the CPU, on torch's stream on a GPU, under any NumPy."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import fresh_process
import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, Sample, errors
from opsmith.checks import compare_samples

numba = pytest.importorskip("numba", reason="Numba is not installed: pip install 'opsmith[numba]'")
pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'opsmith[numba]'")

from numba import cuda  # noqa: E402

Fresh = Callable[[str], str]

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_has_run() -> None:
    ran.clear()


# --- kernels --------------------------------------------------------------------------------------------------------


@cuda.jit(device=True)
def product(x, y):
    return x * y


@opsmith.numba_kernel
@cuda.jit
def square_kernel(x, out):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        out[i, j] = product(x[i, j], x[i, j])


@opsmith.numba_kernel
@cuda.jit
def double_product_kernel(x, y, out):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        out[i, j] = 2 * product(x[i, j], y[i, j])


@opsmith.numba_kernel
@cuda.jit
def reverse_in_block(x, out):
    """Reverses each block through dynamic shared memory."""
    held = cuda.shared.array(0, numba.float32)
    t, first = cuda.threadIdx.x, cuda.blockIdx.x * cuda.blockDim.x
    held[t] = x[first + t]
    cuda.syncthreads()
    out[first + t] = held[cuda.blockDim.x - 1 - t]


@opsmith.numba_kernel
@cuda.jit
def add_number(x, out, number):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + number


@opsmith.numba_kernel
@cuda.jit
def careless(x, out):
    out[cuda.grid(1)] = x[cuda.grid(1)]


@opsmith.numba_kernel
@cuda.jit
def write_block_number(out):
    out[0] = cuda.blockIdx.x


def square(x: Tensor) -> Tensor:
    return x * x


def launch_square(x: Tensor) -> Any:
    ran.append("forward")
    if x.dtype is torch.bfloat16 or x.ndim != 2:
        return NotImplemented
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    square_kernel[(-(-x.shape[0] // 4), -(-x.shape[1] // 8)), (4, 8)](x, out)
    return out


def launch_square_backward(grads: tuple[Tensor, ...], x: Tensor, *, needs: Any) -> Any:
    ran.append("backward")
    if x.dtype is torch.bfloat16 or x.ndim != 2:
        return NotImplemented
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    double_product_kernel[(-(-x.shape[0] // 4), -(-x.shape[1] // 8)), (4, 8)](x, grads[0], out)
    return out


def samples(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample(args=(torch.randn(5, 17, device=device, dtype=dtype),), name="contiguous")
    yield Sample(args=(torch.randn(5, 17, device=device, dtype=dtype).t(),), name="permuted")
    yield Sample(args=(torch.randn(9, 17, device=device, dtype=dtype)[::2, 1::3],), name="sliced")
    yield Sample(args=(torch.randn(5, 1, device=device, dtype=dtype).expand(5, 3),), name="expanded")
    yield Sample(args=(torch.randn(0, 3, device=device, dtype=dtype),), name="empty")
    yield Sample(args=(torch.tensor(1.5, device=device, dtype=dtype),), name="0-dim, which the kernel does not take")


@pytest.fixture
def op(fresh: Fresh, tier: str) -> Op:
    op = opsmith.op(fresh("numba_square"))(square)
    op.register_kernel("cuda", launch_square, layout="strided")
    op.register_backward("cuda", launch_square_backward, layout="strided")
    op.register_samples(samples)
    return op


# --- in the simulator -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_inside_emulate_the_kernels_run_on_cpu_tensors(op: Op, dtype: torch.dtype) -> None:
    with opsmith.emulate():
        compared = compare_samples(op, dtype=dtype)
    assert [f"{each.what}: {each.message}" for each in compared if not each] == []
    assert ran.count("forward") == ran.count("backward") >= 6
    assert op.kernels["cuda"]["default"].language == "Numba"


def test_outside_of_it_the_reference_does(op: Op) -> None:
    assert all(compare_samples(op))
    assert ran == []


def test_the_backward_of_what_was_recorded_inside_runs_its_kernel_after_the_block(op: Op) -> None:
    x = torch.randn(3, 5, requires_grad=True)
    with opsmith.emulate():
        y = op(x)
    y.sum().backward()
    assert ran == ["forward", "backward"]
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_transforms_and_torch_compile_hold_inside(op: Op) -> None:
    leaf = torch.randn(3, 5, requires_grad=True)
    compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
    with opsmith.emulate():
        (gradient,) = torch.autograd.grad(compiled(leaf).sum(), leaf)
        torch.testing.assert_close(torch.vmap(op)(leaf.detach()[None]), (leaf * leaf).detach()[None])
    assert set(ran) == {"forward", "backward"}
    torch.testing.assert_close(gradient, 2 * leaf.detach())


def test_the_simulator_writes_into_the_tensors_own_memory() -> None:
    wide = torch.zeros(10)
    with opsmith.emulate():
        add_number[2, 4](torch.arange(5.0), wide[::2], 3)
    torch.testing.assert_close(wide, torch.tensor([3.0, 0, 4, 0, 5, 0, 6, 0, 7, 0]))


def test_threads_of_a_block_wait_for_each_other_and_share_memory() -> None:
    x, out = torch.arange(12.0), torch.zeros(12)
    with opsmith.emulate():
        reverse_in_block[3, 4, 16](x, out)
    assert torch.equal(out, x.view(3, 4).flip(1).view(-1))


def test_a_tensor_that_needs_a_gradient_is_passed_all_the_same() -> None:
    x, out = torch.randn(5, requires_grad=True), torch.zeros(5)
    with opsmith.emulate():
        add_number[1, 8](x, out, 1.0)
    torch.testing.assert_close(out, x.detach() + 1)


def test_blocks_run_in_an_order_drawn_from_the_seed() -> None:
    def last(seed: int | None) -> float:
        out = torch.zeros(1)
        with opsmith.emulate(seed=seed):
            write_block_number[8, 1](out)
        return float(out)

    assert last(None) == 7
    assert len({last(seed) for seed in range(8)}) > 2
    assert last(5) == last(5)


def test_threads_simulate_at_once(op: Op) -> None:
    failures: list[Any] = []

    def work(seed: int) -> None:
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))
        try:
            with opsmith.emulate():
                torch.testing.assert_close(op(x), x * x)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and len(ran) == 4


def test_the_authors_module_keeps_its_cuda(op: Op) -> None:
    before = dict(globals())
    with opsmith.emulate():
        op(torch.randn(4, 4))
    assert globals() == before and globals()["cuda"] is cuda


def test_an_empty_grid_launches_nothing() -> None:
    out = torch.zeros(8)
    with opsmith.emulate():
        add_number[0, 8](torch.ones(8), out, 1)
    assert not out.any()


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_an_access_outside_of_a_tensor_is_refused_with_its_thread() -> None:
    with (
        opsmith.emulate(),
        pytest.raises(
            errors.KernelFault, match=r"careless .*: out of bounds at .*block \(1, 0, 0\), thread \([23], 0"
        ) as caught,
    ):
        careless[2, 4](torch.zeros(6), torch.zeros(6))
    fault = caught.value
    assert (fault.file, fault.line) == (__file__, careless.py_func.__code__.co_firstlineno + 3)
    assert fault.block == (1, 0, 0) and "Guard the access: if i < x.size" in str(fault)


@opsmith.numba_kernel
@cuda.jit
def failing(x):
    raise ValueError("the kernel's own message")


def test_an_exception_of_a_kernel_is_shown_with_its_line() -> None:
    with opsmith.emulate(), pytest.raises(errors.EmulationError, match=r"failing.*the kernel's own message") as caught:
        failing[1, 1](torch.zeros(1))
    launch, kernel = str(caught.value).splitlines()[-2:]
    assert launch.endswith(": failing[1, 1](torch.zeros(1))")
    assert kernel.endswith(""": raise ValueError("the kernel's own message")""")


def test_cpu_tensors_outside_of_emulate_are_refused() -> None:
    with pytest.raises(errors.KernelValueError, match=r"add_number .*: x is on the cpu, and .*: x = x.cuda") as caught:
        add_number[1, 8](torch.zeros(3), torch.zeros(3), 1)
    launch, kernel = str(caught.value).splitlines()[-2:]
    assert launch.endswith(": add_number[1, 8](torch.zeros(3), torch.zeros(3), 1)")
    assert kernel.endswith(": def add_number(x, out, number)")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((1,), r"kernel\[grid, block\]\(...\) or"),
        ((1, 8, 0, 0), r"the stream is torch's current one"),
        ((1, 8, "stream"), r"the shared memory is 'stream': .* the stream is torch's current one"),
        ((1.5, 8), r"the grid takes integers, not float 1.5"),
        ((1, 2048), r"the block is 2048, and its x is at most 1024"),
        ((-1, 8), r"the grid is -1, and its x is at least 0"),
    ],
)
def test_a_configuration_that_no_launch_can_have_is_refused(key: Any, message: str) -> None:
    with pytest.raises(errors.LaunchConfigurationError, match=message):
        add_number[key]


def test_a_launch_without_a_grid_and_one_with_too_few_arguments_are_refused() -> None:
    x = torch.zeros(3)
    with pytest.raises(errors.LaunchConfigurationError, match=r"needs a grid and a block: add_number\[grid, block\]"):
        add_number(x, x, 1)
    with pytest.raises(errors.KernelArgumentError, match=r"missing a required argument: 'number'") as caught:
        add_number[1, 8](x, x)
    assert "add_number(x, out, number)" in str(caught.value)


def test_dtypes_and_layouts_that_numba_cannot_read_are_refused() -> None:
    out = torch.zeros(3)
    with pytest.raises(
        errors.KernelArgumentError, match=r"Numba cannot read torch.bfloat16, the dtype of x; pass x.float\(\)"
    ):
        add_number[1, 8](torch.zeros(3, dtype=torch.bfloat16), out, 1)
    with pytest.raises(errors.KernelValueError, match="x is a lazily negated or conjugated tensor"):
        add_number[1, 8](torch.zeros(3, dtype=torch.complex64).conj(), out, 1)
    with pytest.raises(errors.KernelValueError, match=r"x is a torch.sparse_coo tensor"):
        add_number[1, 8](torch.zeros(3).to_sparse(), out, 1)


def test_tensors_of_two_devices_are_refused() -> None:
    with pytest.raises(errors.DeviceMixError, match=r"x on cpu, out on meta"):
        add_number[1, 8](torch.zeros(3), torch.zeros(3, device="meta"), 1)


def test_numba_kernel_takes_a_kernel_alone() -> None:
    with pytest.raises(
        errors.NumbaKernelTypeError, match=r"takes what @numba.cuda.jit returns for a function, not square \("
    ):
        opsmith.numba_kernel(square)
    with pytest.raises(errors.NumbaDeviceFunctionError, match=r"product \(test_numba.py:\d+\) is a device function"):
        opsmith.numba_kernel(product)
    with pytest.raises(errors.NumbaKernelTypeError, match="not a NumbaKernel"):
        opsmith.numba_kernel(square_kernel)


bare_kernel = square_kernel.kernel


def launch_bare(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    bare_kernel[1, 32](x, out)
    return out


def test_a_launch_on_numbas_own_stream_is_refused_with_the_fix(op: Op) -> None:
    words = r"launch_bare \(test_numba.py:\d+\) launches the Numba kernel square_kernel .* on Numba's own stream"
    for register in (op.register_kernel, op.register_backward):
        with pytest.raises(errors.NumbaStreamError, match=words) as caught:
            register("cuda", launch_bare)
        assert "opsmith.numba_kernel(square_kernel)" in str(caught.value)
    with opsmith.emulate():
        torch.testing.assert_close(op(torch.ones(2, 2)), torch.ones(2, 2))
    assert ran == ["forward"], "the kernel that was there before stays"


MISSING = """
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name.startswith("numba") else real(name, *a)
import torch, opsmith
op = opsmith.ops.add_two
assert "Numba forward (numba_kernel.py:" in repr(op), repr(op)
op(torch.randn(3))
try:
    with op.using("numba"):
        pass
except ImportError as error:
    assert isinstance(error, opsmith.OpsmithError)
    print(error)
"""


def test_without_numba_everything_else_works_and_the_choice_names_the_command_that_installs_it() -> None:
    done = fresh_process.run(["-c", MISSING])
    assert done.returncode == 0, done.stderr
    assert "pip install numba-cuda" in done.stdout


# --- NumPy 2.5, which has no np.row_stack ---------------------------------------------------------------------------

UNDER_NEWER_NUMPY = """
import sys, numpy
if hasattr(numpy, "row_stack"):
    del numpy.row_stack
from numba import cuda
from numba.cuda.types import float32

def kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + 2

def compiled():
    return ".entry" in cuda.compile_ptx(kernel, (float32[:], float32[:]), cc=(9, 0))[0]

if sys.argv[1] == "alone":
    compiled()
elif sys.argv[1] == "after a failure":
    try:
        compiled()
    except AttributeError:
        pass
import torch, opsmith
opsmith.numba_kernel(cuda.jit(kernel))
assert not hasattr(numpy, "row_stack")
assert compiled()
print("compiled")
"""


@pytest.mark.parametrize("how", ["alone", "supplied", "after a failure"])
def test_numba_compiles_under_a_numpy_without_row_stack(how: str) -> None:
    from numba.cuda.cudadrv import nvvm

    if not nvvm.is_available():
        pytest.skip("Numba finds no NVVM to compile with: pip install nvidia-nvvm")
    done = subprocess.run([sys.executable, "-c", UNDER_NEWER_NUMPY, how], capture_output=True, text=True)
    if how == "alone" and done.returncode == 0:
        pytest.skip("this numba-cuda works without np.row_stack")
    assert (done.stdout.strip() == "compiled") == (how != "alone"), done.stderr
    if how == "alone":
        assert "has no attribute 'row_stack'" in done.stderr


# --- on a GPU -------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_on_a_gpu_results_and_gradients_are_the_references(op: Op, dtype: torch.dtype) -> None:
    with opsmith.emulate():  # which is about CPU tensors
        first = compare_samples(op, "cuda", dtype)
    compared = first + compare_samples(op, "cuda", dtype)
    assert [f"{each.what}: {each.message}" for each in compared if not each] == []
    times = 3 if dtype.itemsize == 2 else 1  # how often a half type is rounded is seen by two more calls
    assert ran.count("forward") == ran.count("backward") == 12 * times


@pytest.mark.gpu
def test_on_a_gpu_memory_is_shared_and_strides_are_kept() -> None:
    wide = torch.zeros(10, device="cuda", requires_grad=True)
    add_number[2, 4](torch.arange(5.0, device="cuda"), wide.detach()[::2], 3)
    assert wide.tolist() == [3.0, 0, 4, 0, 5, 0, 6, 0, 7, 0]
    x, out = torch.arange(12.0, device="cuda"), torch.zeros(12, device="cuda")
    reverse_in_block[3, 4, 16](x, out)
    assert torch.equal(out, x.view(3, 4).flip(1).view(-1))
    add_number[0, 4](x, out, 1)  # an empty grid


@pytest.mark.gpu
@pytest.mark.parametrize("which", ["default", "side"])
def test_on_a_gpu_a_launch_goes_to_torchs_current_stream_and_waits_for_nothing(which: str) -> None:
    x = torch.ones(1 << 20, device="cuda")
    out = torch.zeros_like(x)
    add_number[4096, 256](x, out, 1.0)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream() if which == "side" else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # a tenth of a second, after which x is written
        x.fill_(5.0)
        add_number[4096, 256](x, out, 1.0)
        assert not stream.query(), "the launch waited for the stream"
        result = out.clone()
    stream.synchronize()
    assert bool((result == 6.0).all())


@pytest.mark.gpu
def test_on_a_gpu_a_launch_is_captured_in_a_graph() -> None:
    x, out = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
    add_number[1, 128](x, out, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add_number[1, 128](x, out, 1.0)
    x.fill_(7.0)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((out == 8.0).all())


@pytest.mark.gpu
def test_on_a_gpu_a_thread_that_has_not_used_it_launches_too() -> None:
    x, out = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
    failures: list[Any] = []

    def work() -> None:
        try:
            add_number[1, 8](x, out, 1.0)
            torch.cuda.synchronize()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == [] and bool((out == 2.0).all())


@pytest.mark.gpu
def test_on_several_gpus_a_launch_goes_to_that_of_its_tensors() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    for index in itertools.chain(range(torch.cuda.device_count()), [0]):
        x = torch.ones(8, device=f"cuda:{index}")
        out = torch.zeros_like(x)
        add_number[1, 8](x, out, 1.0)
        assert bool((out == 2.0).all())


@cuda.jit
def untypable(x):
    x[0] = no_such_function(x)  # noqa: F821


@pytest.mark.gpu
def test_on_a_gpu_what_numba_cannot_compile_or_launch_names_the_kernel() -> None:
    x = torch.zeros(3, device="cuda")
    with pytest.raises(errors.NumbaLaunchError, match=r"untypable \(test_numba.py:\d+\).*a grid of 1") as caught:
        opsmith.numba_kernel(untypable)[1, 1](x)
    assert "no_such_function" in str(caught.value)
    with pytest.raises(errors.NumbaLaunchError, match="shared memory failed"):
        reverse_in_block[1, 3, 1 << 24](x, x.clone())
