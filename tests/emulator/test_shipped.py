"""The CUDA kernels of the shipped ops in the emulator. tests/checks/test_shipped.py compares each with the reference;
here it is what the checklist does not emulate."""

from __future__ import annotations

import torch

import opsmith
from opsmith import emulator as emulator  # which says what can be emulated
from opsmith.checks import compare
from opsmith.checks.subject import EMULATED
from opsmith.kernels import NativeKernel
from opsmith.kernels.kernel import DEFAULT

LARGE = 1 << 18


def emulated_kernels(op: opsmith.Op) -> list[str]:
    """The op's CUDA kernels that opsmith itself emulates: generated, of a CudaSource, of an extension."""
    return [
        kernel.name
        for kernel in op.kernels.get("cuda", {}).values()
        if kernel.language == "CUDA C++" or (isinstance(kernel, NativeKernel) and kernel.native.emulated() is not None)
    ]


def test_calls_larger_than_the_checklist_emulates_match_the_reference() -> None:
    op = opsmith.ops.convrnn
    samples = [
        sample
        for sample in op.samples_for("cpu", torch.float32)
        if EMULATED < max(value.numel() for value in sample.args if isinstance(value, torch.Tensor)) < LARGE
    ]
    assert samples
    for kernel in emulated_kernels(op):
        with opsmith.emulate(seed=1), op.using(kernel):
            assert op._families.in_use() is op._families.emulated[kernel]
            compared = [each for sample in samples for each in compare(op, sample)]
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
