"""Every CUDA kernel that opsmith ships, generated and hand-written, runs on the CPU with all checks on, and gives the
reference's numbers. Ops and their kernels are found: a new one is tested with no line here."""

from __future__ import annotations

import pytest
import torch

import opsmith
from opsmith.checks import compare
from opsmith.kernels import NativeKernel
from opsmith.kernels.kernel import DEFAULT

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
LARGE = 1 << 18
MOST = 3
"""Samples of float32, since some kernels are compiled for each shape; tests/checks/test_shipped.py runs all of them."""


def emulated_kernels(op: opsmith.Op) -> list[str]:
    """The op's CUDA kernels that opsmith itself emulates: generated, of a CudaSource, of an extension."""
    return [
        kernel.name
        for kernel in op.kernels.get("cuda", {}).values()
        if kernel.language == "CUDA C++" or (isinstance(kernel, NativeKernel) and kernel.native.emulated() is not None)
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", opsmith.ops.__all__)
def test_it_gives_the_references_numbers_and_does_nothing_wrong(name: str, dtype: torch.dtype) -> None:
    op = getattr(opsmith.ops, name)
    samples = [
        sample
        for sample in op.samples_for("cpu", dtype)
        if all(value.numel() < LARGE for value in sample.args if isinstance(value, torch.Tensor))
    ]
    chosen = samples[:MOST] if dtype is torch.float32 else samples[:1]
    kernels = emulated_kernels(op)
    assert kernels
    for kernel in kernels:
        with opsmith.emulate(seed=1), op.using(kernel):
            assert op._families.in_use() is op._families.emulated[kernel]
            compared = [each for sample in chosen for each in compare(op, sample)]
        assert [f"{each.what}: {each.message}" for each in compared if not each] == []
        assert any("gradient" in each.what for each in compared)


def test_there_are_generated_and_hand_written_ones() -> None:
    assert emulated_kernels(opsmith.ops.mish) == emulated_kernels(opsmith.ops.convrnn) == [DEFAULT]
    assert emulated_kernels(opsmith.ops.polynomial) == [DEFAULT, "cuda_string"]
    assert emulated_kernels(opsmith.ops.elementwise_mult) == [DEFAULT, "extension"]


def test_second_gradients_are_emulated_too() -> None:
    x = torch.randn(40, dtype=torch.float64, requires_grad=True)
    with opsmith.emulate():
        assert torch.autograd.gradgradcheck(opsmith.ops.mish, (x,))


def test_an_op_declared_inside_is_emulated_too() -> None:
    with opsmith.emulate():

        @opsmith.pointwise("emulated::declared_inside")
        def declared_inside(x: torch.Tensor) -> torch.Tensor:
            return x * torch.sigmoid(x)

        assert declared_inside._families.in_use() is declared_inside._families.emulated[DEFAULT]
        x = torch.randn(40)
        torch.testing.assert_close(declared_inside(x), torch.nn.functional.silu(x))
    assert declared_inside._families.in_use() is declared_inside._families.default
