"""Triton's interpreter on kernels made to be compiled: what they may be made of, what is checked, in which order."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import errors

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install 'opsmith[triton]'")

import triton.language as tl  # noqa: E402

from . import triton_ops  # noqa: E402
from .triton_ops import launched_through, negative, square, tuned_kernel  # noqa: E402

Fresh = Callable[[str], str]


@triton.jit
def twice(x):
    return triton_ops.plus(x, x)


@triton.jit
def calling_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + i, twice(value) - tl.sum(value, axis=0) + value.max(0), mask=i < n)


def expected_of_calling(x: Tensor) -> Tensor:
    rows = x.view(2, 8)
    return (2 * rows - rows.sum(1, keepdim=True) + rows.max(1, keepdim=True).values).view(-1)


def test_a_kernel_calls_functions_of_its_module_of_another_one_and_of_tritons_library() -> None:
    x = torch.randn(16)
    torch.testing.assert_close(launched_through(calling_kernel)(x), expected_of_calling(x))


@pytest.mark.gpu
def test_on_a_gpu_a_kernel_compiles_after_it_was_interpreted() -> None:
    launched_through(calling_kernel)(torch.randn(16))
    x = torch.randn(16, device="cuda")
    out = torch.empty_like(x)
    calling_kernel[(2,)](x, out, x.numel(), BLOCK=8)
    torch.testing.assert_close(out, expected_of_calling(x))


@triton.jit
def first_of_two(a, b):
    return a * 0 + a + b * 0


@triton.jit
def library_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    result = tl.cumsum(value, axis=0) + tl.softmax(value, 0) + tl.sigmoid(value) + tl.zeros([BLOCK], dtype=tl.float32)
    result += tl.reduce(value, 0, first_of_two) + tl.argmax(value, axis=0) + tl.flip(value, 0)
    result += tl.cdiv(n, 3) + tl.min(value, axis=0) + tl.sum(tl.reshape(value, [2, BLOCK // 2]).trans(), axis=0).sum(0)
    tl.store(out + i, result)


def test_tritons_standard_library_is_interpreted_too() -> None:
    x = torch.randn(8)
    expected = x.cumsum(0) + x.softmax(0) + x.sigmoid() + x[0] + x.argmax() + x.flip(0) + 3 + x.min() + x.sum()
    torch.testing.assert_close(launched_through(library_kernel)(x), expected)


def test_a_kernel_may_be_defined_inside_of_a_function_and_redefined() -> None:
    for offset in (1.0, 2.0):
        shift = tl.constexpr(offset)

        @triton.jit
        def closing(x, out, n, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(out + i, tl.load(x + i, mask=i < n) + shift, mask=i < n)  # noqa: B023

        x = torch.randn(9)
        torch.testing.assert_close(launched_through(closing)(x), x + offset)


def test_of_an_autotuned_kernel_the_first_configuration_runs_and_heuristics_are_computed(fresh: Fresh) -> None:
    op = opsmith.op(fresh("tuned"))(square)

    @op.register_kernel("cuda")
    def launch(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out

    with opsmith.emulate():
        for n, even in ((8, 1), (9, 0)):
            x = torch.randn(n)
            torch.testing.assert_close(op(x), x * 4 + even)
        with pytest.raises(errors.EmulationError, match="BLOCK is passed, but its configs set it"):
            launched_through(tuned_kernel)(torch.randn(8))


@pytest.mark.parametrize("way", ["helper", "module", "partial", "default", "decorated", "wrap_triton"])
def test_a_launch_is_found_where_the_function_leads(way: str, fresh: Fresh) -> None:
    op = opsmith.op(fresh(f"way_{way}"))(negative)

    def directly(x: Tensor, kernel: Any = triton_ops.negate) -> Tensor:
        out = torch.empty_like(x)
        kernel[(1,)](x, out, x.numel(), BLOCK=8)
        return out

    def through_a_module(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        triton_ops.negate[(1,)](x, out, x.numel(), BLOCK=8)
        return out

    def wrapped_by_hand(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(triton_ops.negate)[(1,)](x, out, x.numel(), BLOCK=8)
        return out

    def through_a_helper(x: Tensor) -> Tensor:
        return through_a_module(x)

    ways: dict[str, Any] = {
        "helper": through_a_helper,
        "module": through_a_module,
        "partial": functools.partial(directly, kernel=triton_ops.negate),
        "default": directly,
        "decorated": torch.no_grad()(through_a_module),
        "wrap_triton": wrapped_by_hand,
    }
    op.register_kernel("cuda", ways[way])
    assert op.kernels["cuda"]["default"].language == "Triton"
    x = torch.randn(6)
    with opsmith.emulate():
        torch.testing.assert_close(op(x), -x)
    assert len(op._families.emulated) == 1


@triton.jit
def random_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.rand(7, i))


def test_random_numbers_are_tritons_own() -> None:
    x = torch.empty(8)
    first, second = (launched_through(random_kernel)(x) for _ in range(2))
    assert torch.equal(first, second) and first.unique().numel() == 8 and bool(((first >= 0) & (first < 1)).all())


# --- checks and seed ------------------------------------------------------------------------------------------------


@triton.jit
def careless_kernel(x, out, n, BLOCK: tl.constexpr, WHAT: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if WHAT == "load":
        tl.store(out + i, tl.load(x + i), mask=i < n)
    elif WHAT == "store":
        tl.store(out + i, i.to(tl.float32))
    elif WHAT == "before":
        tl.store(out + i, tl.load(x + i - 1, mask=i < n), mask=i < n)
    else:
        tl.atomic_add(out + i, 1.0)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("load", r"block \(1, 0, 0\): it reads 4 bytes at byte 40 of x, which has 40"),
        ("store", r"block \(1, 0, 0\): it writes 4 bytes at byte 40 of out, which has 40"),
        ("before", r"block \(0, 0, 0\): it reads 4 bytes that begin 4 bytes before x"),
        ("atomic", r"block \(1, 0, 0\): it atomically changes 4 bytes at byte 40 of out, which has 40"),
    ],
)
def test_an_access_outside_of_the_launchs_tensors_is_refused(what: str, words: str) -> None:
    memory = torch.zeros(3, 100)
    x, out = memory[0, 50:60], memory[2, 50:60]  # no access reaches beyond what is torch's, whatever is broken
    launch = emulated_on(careless_kernel, x, out, WHAT=what)
    with opsmith.emulate(), pytest.raises(errors.KernelFault, match=words) as caught:
        launch()
    fault = caught.value
    assert "careless_kernel (test_triton_interpreter.py:" in str(fault) and fault.file == __file__
    assert "tl." in linecache.getline(__file__, fault.line or 0), "the line of the access"
    with opsmith.emulate(checks=False):
        launch()


def emulated_on(kernel: Any, x: Tensor, out: Tensor, **meta: Any) -> Callable[[], Any]:
    from opsmith.kernels import languages

    def launch() -> None:
        kernel[(2,)](x, out, x.numel(), BLOCK=8, **meta)

    emulated = languages.emulated(launch)
    assert emulated is not None
    return emulated


@triton.jit
def racing_kernel(x, out, n, BLOCK: tl.constexpr):
    tl.store(out, tl.program_id(0).to(tl.float32))


def test_programs_run_in_an_order_drawn_from_the_seed() -> None:
    def last(seed: int | None) -> float:
        with opsmith.emulate(seed=seed):
            return float(launched_through(racing_kernel)(torch.zeros(64))[0])

    assert last(None) == 7
    assert len({last(seed) for seed in range(8)}) > 2
    assert last(5) == last(5)


@triton.jit
def half_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    tl.store(out + i, value + value, mask=i < n)


def test_arithmetic_that_the_interpreter_would_do_on_bits_is_refused() -> None:
    from opsmith.kernels.triton_interpreter import _computes_in_bfloat16

    x = torch.randn(8, dtype=torch.bfloat16)
    if _computes_in_bfloat16():
        torch.testing.assert_close(launched_through(half_kernel)(x), x + x)
    else:
        with pytest.raises(errors.EmulationError, match=r"it computes in bf16.*x\.to\(tl\.float32\)"):
            launched_through(half_kernel)(x)
    torch.testing.assert_close(launched_through(half_kernel)(x.half()), x.half() + x.half())
