"""Triton kernels as an op's: emulated on the CPU, and on a GPU. What torch.compile sees of them: test_triton_inline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import fresh_process
import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, errors
from opsmith.checks import compare_samples

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install 'opsmith[triton]'")

import triton.language as tl  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

from . import triton_ops  # noqa: E402
from .triton_ops import (  # noqa: E402
    declared,
    failing_kernel,
    launch_square,
    launched_through,
    ran,
    square_kernel,
)

Fresh = Callable[[str], str]
pytestmark = pytest.mark.usefixtures("tier")


@pytest.fixture(autouse=True)
def _nothing_has_run() -> None:
    ran.clear()


@pytest.fixture
def op(fresh: Fresh) -> Op:
    return declared(fresh("triton_square"))


# --- inside opsmith.emulate -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_inside_emulate_the_kernels_run_on_cpu_tensors(op: Op, dtype: torch.dtype) -> None:
    with opsmith.emulate():
        compared = compare_samples(op, dtype=dtype)
    assert [f"{each.what}: {each.message}" for each in compared if not each] == []
    assert ran.count("forward") == ran.count("backward") >= 5


def test_outside_of_it_the_reference_does(op: Op) -> None:
    assert all(compare_samples(op))
    assert ran == []


def test_the_backward_of_what_was_recorded_inside_runs_its_kernel_after_the_block(op: Op) -> None:
    x = torch.randn(40, requires_grad=True)
    with opsmith.emulate():
        y = op(x)
    y.sum().backward()
    assert ran == ["forward", "backward"]
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_transforms_and_torch_compile_hold_inside(op: Op) -> None:
    x = torch.randn(3, 5, dtype=torch.float64)
    with opsmith.emulate():
        torch.testing.assert_close(torch.vmap(op)(x), x * x)
        total = lambda value: op(value).sum()  # noqa: E731
        torch.testing.assert_close(torch.func.hessian(total)(x[0]), 2 * torch.eye(5, dtype=torch.float64))
    compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
    leaf = torch.randn(40, requires_grad=True)
    expected = 2 * leaf.detach()
    ran.clear()
    for inside in (False, True, False):
        if inside:
            with opsmith.emulate():
                result = compiled(leaf)
        else:
            result = compiled(leaf)
        (gradient,) = torch.autograd.grad(result.sum(), leaf)
        torch.testing.assert_close(gradient, expected)
        assert set(ran) == ({"forward", "backward"} if inside else set())
        ran.clear()


def test_using_picks_the_kernel_that_is_emulated(op: Op) -> None:
    @op.register_kernel("cuda", name="other")
    def other(x: Tensor) -> Tensor:
        ran.append("other")
        return launch_square(x)

    x = torch.randn(4)
    with opsmith.emulate():
        for kernel, expected in (("other", ["other", "forward"]), ("default", ["forward"]), ("reference", [])):
            ran.clear()
            with op.using(kernel):
                torch.testing.assert_close(op(x), x * x)
            assert ran == expected


def test_a_kernel_that_does_not_take_the_arguments_leaves_them_to_the_reference(op: Op) -> None:
    x = torch.arange(5)
    with opsmith.emulate():
        assert torch.equal(op(x), x * x)
    assert ran == ["forward"]


def test_an_op_declared_inside_and_a_kernel_replaced_inside(fresh: Fresh) -> None:
    x = torch.randn(6)
    with opsmith.emulate():
        op = declared(fresh("declared_inside"))
        torch.testing.assert_close(op(x), x * x)
        assert ran == ["forward"]

        @op.register_kernel("cuda")
        def negated(x: Tensor) -> Tensor:
            out = torch.empty_like(x)
            triton_ops.negate[(1,)](x, out, x.numel(), BLOCK=8)
            return out

        torch.testing.assert_close(op(x), -x)
        op.register_kernel("cuda", lambda x: x * x * x)  # of which there is nothing to emulate
        torch.testing.assert_close(op(x), x * x)
    torch.testing.assert_close(op(x), x * x)


def test_a_cpu_kernel_gives_way_inside_and_returns_after(op: Op) -> None:
    op.register_kernel("cpu", lambda x: (ran.append("cpu"), x * x)[1])
    x = torch.randn(4)
    for _ in range(2):
        op(x)
        with opsmith.emulate():
            op(x)
    assert ran == ["cpu", "forward"] * 2


def test_only_the_thread_that_entered_emulates(op: Op) -> None:
    x, seen = torch.randn(4), []

    def elsewhere() -> None:
        op(x)
        seen.append(list(ran))

    with opsmith.emulate():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert seen == [[]]


def test_many_threads_emulate_at_once(op: Op) -> None:
    failures: list[Any] = []

    def work(seed: int) -> None:
        x = torch.randn(70, generator=torch.Generator().manual_seed(seed), requires_grad=True)
        try:
            with opsmith.emulate(seed=seed):
                y = op(x)
                (gradient,) = torch.autograd.grad(y.sum(), x)
            torch.testing.assert_close(y, x * x)
            torch.testing.assert_close(gradient, 2 * x)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and len(ran) == 12


def test_blocks_nest_and_an_exception_leaves_nothing_behind(op: Op) -> None:
    from opsmith.kernels import emulation

    x = torch.randn(4)
    detours = op._detours
    with pytest.raises(KeyError, match="on purpose"), opsmith.emulate(checks=False, seed=3):
        with opsmith.emulate():
            assert emulation.state.settings == emulation.Settings()
        assert emulation.state.settings == emulation.Settings(checks=False, seed=3)
        op(x)
        raise KeyError("on purpose")
    assert not emulation.state.active and op._detours == detours
    ran.clear()
    op(x)
    assert ran == []


def test_triton_and_the_authors_module_are_as_they_were(op: Op) -> None:
    from opsmith.kernels.triton_interpreter import _language

    op._families.emulate()
    with opsmith.emulate():
        op(torch.randn(4))  # what is imported on the way may stay
    before = [dict(vars(each)) for each in _language()], dict(globals()), dict(vars(triton_ops))
    with opsmith.emulate():
        op(torch.randn(4))
        with pytest.raises(errors.EmulationError):
            launched_through(failing_kernel)(torch.randn(4))
    after = [dict(vars(each)) for each in _language()], dict(globals()), dict(vars(triton_ops))
    assert before == after
    assert isinstance(square_kernel, JITFunction) and isinstance(tl.sum, JITFunction)


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_kernel_that_fails_is_named_with_its_own_message() -> None:
    with pytest.raises(errors.EmulationError, match=r"failing_kernel \(triton_ops.py:\d+\).*n is never negative"):
        launched_through(failing_kernel)(torch.randn(4))
    with pytest.raises(errors.EmulationError, match="missing a required argument: 'EXTRA'"):
        launched_through(kernel_with_another_parameter)(torch.randn(4))


@triton.jit
def kernel_with_another_parameter(x, out, n, EXTRA: tl.constexpr, BLOCK: tl.constexpr):
    pass


def test_a_triton_kernel_registered_for_the_cpu_says_that_it_runs_on_a_gpu(op: Op) -> None:
    op.register_kernel("cpu", launch_square)
    with pytest.raises(
        errors.KernelValueError, match=r"launch_square \(triton_ops.py:\d+\): it runs on a GPU.*emulate"
    ) as caught:
        op(torch.randn(4))
    assert "\n  triton_ops.py:" in str(caught.value) and ": kernel[lambda meta:" in str(caught.value)


MISSING = """
import sys
sys.modules["triton"] = None
real = __import__("importlib.util").util.find_spec
__import__("importlib.util").util.find_spec = lambda name, *a: None if name == "triton" else real(name, *a)
import torch, opsmith
op = opsmith.ops.scale_bias_relu
assert "Triton forward (triton_kernel.py:" in repr(op), repr(op)
op(torch.randn(3, 4), torch.randn(4))
try:
    with op.using("triton"):
        pass
except ImportError as error:
    assert isinstance(error, opsmith.OpsmithError)
    print(error)
"""


def test_without_triton_everything_else_works_and_the_choice_names_the_line_that_installs_it() -> None:
    done = fresh_process.run(["-c", MISSING])
    assert done.returncode == 0, done.stderr
    assert "is written in Triton, and there is no package triton" in done.stdout
    assert "pip install triton" in done.stdout


LEAN = """
import sys
import torch, opsmith
opsmith.ops.scale_bias_relu, opsmith.ops.add_two
repr(opsmith.ops.scale_bias_relu), repr(opsmith.ops.add_two)
with opsmith.emulate():
    pass
print([name for name in ("triton", "numba", "torch._dynamo") if name in sys.modules])
"""


def test_declaring_and_describing_an_op_imports_neither_triton_nor_numba() -> None:
    done = fresh_process.run(["-c", LEAN])
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


# --- on a GPU -------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_on_a_gpu_results_and_gradients_are_the_references(op: Op, dtype: torch.dtype) -> None:
    with opsmith.emulate():  # which is about CPU tensors
        first = compare_samples(op, "cuda", dtype)
    compared = first + compare_samples(op, "cuda", dtype)
    assert [f"{each.what}: {each.message}" for each in compared if not each] == []
    times = 3 if dtype.itemsize == 2 else 1  # how often a half type is rounded is seen by two more calls
    assert ran.count("forward") == ran.count("backward") == 10 * times


@pytest.mark.gpu
def test_on_a_gpu_a_launch_goes_to_torchs_current_stream(op: Op) -> None:
    x = torch.randn(1 << 20, device="cuda")
    op.prepare(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late = x + 1
        result = op(late)
    stream.synchronize()
    torch.testing.assert_close(result, (x + 1) ** 2)


@pytest.mark.gpu
def test_on_a_gpu_a_cpu_tensor_given_to_a_kernel_is_an_error_of_ours(op: Op) -> None:
    stray = torch.empty(8)

    @op.register_kernel("cuda")
    def launch(x: Tensor) -> Tensor:
        square_kernel[(1,)](stray, x, x.numel(), BLOCK=8)
        return torch.empty_like(x)

    with pytest.raises(
        errors.KernelValueError, match=r"The Triton kernel of launch \(test_triton.py:\d+\): it runs on a GPU"
    ):
        op(torch.randn(8, device="cuda"))
