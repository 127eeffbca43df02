"""Tests of my_op: opsmith's checklist, one test per item, and tests of its own."""

import pytest
import torch
from opsmith.testing import assert_matches, check_op

from my_package.ops.my_op import MyOp, my_op, my_op_

IN_PLACE = ["values", "gradients", "sizes", "opcheck"]
EMULATED = ["values", "gradients", "outputs_written", "determinism"]

# On the GPU where there is one, else on the CPU.
test_my_op = check_op(my_op)
test_in_place = check_op(my_op_, items=IN_PLACE)

# The CUDA kernels on the CPU: no GPU is needed, and every access to memory is checked. These items take seconds;
# `opsmith check --emulate` runs all.
test_emulated = check_op(my_op, emulate=True, items=EMULATED)


@pytest.mark.parametrize("features", [1, 31, 33, 257])
def test_every_size_of_a_row_emulated(opsmith_emulate: object, features: int) -> None:
    x, residual = torch.randn(2, 2, features)
    assert_matches(my_op, x, residual, torch.randn(features))


def test_in_place_emulated(opsmith_emulate: object) -> None:
    assert_matches(my_op_, torch.randn(2, 8), torch.randn(2, 8), torch.ones(8))


def test_a_batch_and_a_row_of_zeros() -> None:
    x = torch.randn(2, 3, 8)
    x[1, 2] = 0
    assert_matches(my_op, x, torch.zeros_like(x), torch.ones(8))


def test_wrong_shapes_are_refused_with_a_message() -> None:
    module, refused = MyOp(8), (ValueError, RuntimeError)  # C++ raises the second
    with pytest.raises(refused, match=r"residual.*\[2, 4\]"):
        module(torch.ones(2, 8), torch.ones(2, 4))
    with pytest.raises(refused, match=r"(weight|features).*8"):
        module(torch.ones(2, 4), torch.ones(2, 4))


def test_in_place_the_results_are_the_inputs() -> None:
    x, residual, learned = torch.randn(2, 8), torch.randn(2, 8), torch.randn(8)
    expected = my_op(x, residual, learned)
    changed = my_op_(x, residual, learned)
    assert changed[0] is x and changed[1] is residual
    torch.testing.assert_close(changed, expected)


def test_the_module_learns() -> None:
    module = MyOp(8)
    y, total = module(torch.randn(4, 8), torch.randn(4, 8))
    (y.square().sum() + total.sum()).backward()
    (learned,) = module.parameters()
    assert learned.grad is not None and learned.grad.abs().sum() > 0
