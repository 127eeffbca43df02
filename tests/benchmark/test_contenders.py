"""Who is measured beside an op, what each returns, and the reason why one is not."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch._functorch import config

import opsmith
from opsmith import errors
from opsmith.benchmark import Ceilings
from opsmith.benchmark.contenders import BASELINES, contender, replayable

from .ops_to_time import Fresh, cubed, halve_, scale_add


@pytest.mark.parametrize("name", ["opsmith", "eager", "compile", "compile-max"])
def test_each_computes_the_op(fresh: Fresh, name: str) -> None:
    x, bias = torch.randn(8, 6), torch.randn(6)
    given = contender(scale_add(fresh), name, "cpu")([x, bias, 3.0])
    torch.testing.assert_close(given, x * 3 + bias)


@pytest.mark.parametrize("name", ["opsmith", "eager", "compile"])
def test_in_place_each_returns_what_it_changed(fresh: Fresh, name: str) -> None:
    x = torch.full((3,), 4.0)
    assert contender(halve_(fresh), name, "cpu")([x]) is x
    assert x.tolist() == [2.0] * 3


@pytest.mark.parametrize("name", ["opsmith", "eager"])
def test_arguments_that_are_given_by_name(fresh: Fresh, name: str) -> None:
    def shift(x: torch.Tensor, *, by: float) -> torch.Tensor:
        return x + by

    op = opsmith.op(fresh("shift"))(shift)
    assert contender(op, name, "cpu")([torch.zeros(2), 5.0]).tolist() == [5.0, 5.0]


def test_a_kernel_by_its_name(fresh: Fresh) -> None:
    op = cubed(fresh)
    op.register_kernel("cpu", name="by_power")(lambda x: x**3)
    op.register_kernel("cpu", name="twice")(lambda x: x * x * x)
    assert contender(op, "twice", "cpu")([torch.tensor([2.0])]).item() == 8


def test_an_unknown_contender(fresh: Fresh) -> None:
    op = cubed(fresh)
    op.register_kernel("cpu", name="fast")(lambda x: x**3)
    with pytest.raises(errors.UnavailableError) as caught:
        contender(op, "faster", "cpu")
    known = ", ".join((*BASELINES, "fast"))
    assert str(caught.value) == f"faster is not measured: {op.name} has no such kernel; available: {known}"


def test_a_kernel_for_another_device_is_not_measured_under_its_name(fresh: Fresh) -> None:
    """There `using` would run the op's own kernel, and its time would be reported as that kernel's."""
    op = cubed(fresh)
    op.register_kernel("cpu", name="mine")(lambda x: x**3)
    op.register_kernel("cuda", name="for_gpus")(lambda x: x**3)
    with pytest.raises(errors.UnavailableError, match="has no kernel of that name for cpu"):
        contender(op, "for_gpus", "cpu")


@pytest.mark.gpu
def test_a_compiled_backward_can_be_replayed() -> None:
    """torch gives a backward on a GPU the memory of what it reads, where that is not an input: a ReLU's mask."""
    leaves = [torch.randn(shape, device="cuda", requires_grad=True) for shape in ((128, 128), (128,))]
    with replayable():
        result = contender(opsmith.ops.scale_bias_relu, "compile", "cuda")([*leaves, 1.5])
        first, again = (torch.autograd.grad(result.sum(), leaves, retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


def test_bench_compiles_what_can_be_replayed(fresh: Fresh) -> None:
    seen = []

    def cube(x: torch.Tensor) -> torch.Tensor:
        seen.append(config.donated_buffer)
        return x**3

    before = config.donated_buffer
    sample = opsmith.Sample((torch.randn(8),), {}, "few")
    limits = Ceilings(read=1e10, write=1e10, copy=1e10, matmul={})
    opsmith.bench(opsmith.op(fresh("cube"))(cube), device="cpu", samples=[sample], against=["eager"], ceilings=limits)
    assert seen and not any(seen) and config.donated_buffer is before


def test_liger_says_why_not(fresh: Fresh) -> None:
    installed = importlib.util.find_spec("liger_kernel") is not None
    with pytest.raises(
        errors.UnavailableError, match="liger-kernel has no" if installed else "liger-kernel is not installed"
    ):
        contender(cubed(fresh), "liger", "cpu")
