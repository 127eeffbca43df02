"""How a reference is read: what it may say, what is refused, and with which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opsmith
from opsmith.errors import NotPointwiseError, OutMismatchError, UndeclaredMutationError

from .test_pointwise import branching, check, leaf, sigmoid


def test_numbers_are_arguments_and_flags_choose() -> None:
    x = leaf(5)
    for scale in (0.25, 4.0):
        for times in (1, 3):
            for negate in (False, True):
                for kind in ("sin", "cos"):
                    check(branching, x, scale, times, negate, kind)
    forwards = [
        p
        for p in branching._families.generation.compiler._prepared.values()
        if p and p.program.name.endswith("forward")
    ]
    assert len(forwards) == 4  # not one a number


HELD = torch.ones(3)


def refused(function: Callable[..., Any], fresh: Callable[[str], str]) -> str:
    with pytest.raises(NotPointwiseError) as caught:
        opsmith.pointwise(fresh("refused"))(function)
    message = str(caught.value)
    assert "test_tracing.py:" in message and "opsmith.op" in message
    return message


def test_refusals_name_the_function_and_the_line(fresh: Callable[[str], str]) -> None:
    def branch(x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x

    def branch_on_number(x: Tensor, scale: float) -> Tensor:
        if scale > 1:
            return x
        return x * scale

    def product(x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    def reduction(x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True)

    def indexed(x: Tensor) -> Tensor:
        return x[..., 0] * 2

    def captured(x: Tensor) -> Tensor:
        return x * HELD

    def shape(x: Tensor) -> Tensor:
        return x * x.shape[0]

    def random(x: Tensor) -> Tensor:
        return F.dropout(x)

    assert "sum" in refused(branch, fresh) or "branches on a value" in refused(branch, fresh)
    assert "branches on a value" in refused(branch_on_number, fresh) and "if scale > 1" in refused(
        branch_on_number, fresh
    )
    assert "`@`" in refused(product, fresh) and "return x @ y" in refused(product, fresh)
    assert "Tensor.mean" in refused(reduction, fresh)
    assert "`[...]`" in refused(indexed, fresh)
    assert "not one of its arguments" in refused(captured, fresh)
    assert ".shape" in refused(shape, fresh)
    assert "dropout" in refused(random, fresh)


def test_an_undeclared_mutation_is_refused(fresh: Callable[[str], str]) -> None:
    def mutates(x: Tensor) -> Tensor:
        return x.mul_(2)

    with pytest.raises(UndeclaredMutationError, match="x"):
        opsmith.pointwise(fresh("mutates"))(mutates)


def test_any_name_of_pythons_is_a_name_in_cpp(fresh: Callable[[str], str]) -> None:
    @opsmith.pointwise(fresh("named"))
    def named(exp: Tensor, template: Tensor, double: float, Index: Tensor, words: int, output: Tensor) -> Tensor:
        return torch.exp(exp) * template * double + Index * words + output

    check(named, leaf(3), leaf(3), 2.0, leaf(3), 3, leaf(3))


def test_in_cuda_too(fresh: Callable[[str], str]) -> None:
    @opsmith.pointwise(fresh("named"))
    def named(x: Tensor, linear_index: Tensor, OPSMITH_DEVICE: Tensor) -> Tensor:
        return x * linear_index + OPSMITH_DEVICE

    with opsmith.emulate():
        check(named, leaf(6, 3), leaf(3), leaf(6, 3))


def test_a_list_of_tensors_is_refused(fresh: Callable[[str], str]) -> None:
    def listed(xs: list[Tensor]) -> Tensor:
        return xs[0] + xs[1]

    assert "list of tensors" in refused(listed, fresh)


def test_a_change_in_place_counts_whether_its_value_is_used_or_not(fresh: Callable[[str], str]) -> None:
    @opsmith.pointwise(fresh("changed"))
    def changed(x: Tensor) -> Tensor:
        y = x * 2
        y += 1
        y.add_(x)
        torch.nn.functional.relu(y, inplace=True)
        y.exp()  # computes what nothing uses
        return y

    check(changed, leaf(7))


def test_what_a_trace_cannot_show_is_refused(fresh: Callable[[str], str]) -> None:
    def gradients_off(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x * 3
        return y * x

    def shared_memory(x: Tensor) -> Tensor:
        a = x * 2
        b = a.float()
        b += 1
        return a

    def detached(x: Tensor) -> Tensor:
        a = x * 2
        a.detach().add_(1)
        return a

    def power(x: Tensor, n: int) -> Tensor:
        return x * (2**n)

    def moved(x: Tensor) -> Tensor:
        return x.to("meta") * 2

    assert "gradients off" in refused(gradients_off, fresh)
    assert "one memory" in refused(shared_memory, fresh) and "one memory" in refused(detached, fresh)
    assert "pow" in refused(power, fresh)
    assert "device" in refused(moved, fresh)


def test_declared_inside_no_grad(fresh: Callable[[str], str]) -> None:
    with torch.no_grad():
        op = opsmith.pointwise(fresh("no_grad"))(sigmoid.reference)
    check(op, leaf(3))


def test_masks_and_whole_numbers_as_arguments(fresh: Callable[[str], str]) -> None:
    @opsmith.pointwise(fresh("masked"))
    def masked(x: Tensor, mask: Tensor, bits: Tensor) -> Tensor:
        return torch.where(mask & (x > 0) & ~(bits == 2), x, 0.0) + ((bits << 2) | 1) % 7

    x, mask, bits = leaf(40), torch.rand(40) > 0.5, torch.randint(0, 9, (40,))
    check(masked, x, mask, bits)

    @opsmith.pointwise(fresh("shifted"))
    def shifted(i: Tensor) -> Tensor:
        return (i >> 1) ^ (i << 2)

    whole = torch.randint(-100, 100, (37,))
    assert torch.equal(shifted(whole), shifted.reference(whole))


def test_numbers_are_distinguished_by_more_than_equality(fresh: Callable[[str], str]) -> None:
    @opsmith.pointwise(fresh("signed"))
    def signed(x: Tensor, s: float | None = None) -> Tensor:
        return x if s is None else torch.copysign(x, torch.full_like(x, s))

    x = torch.randn(5)
    for s in (0.0, -0.0, None):
        assert torch.equal(signed(x, s), signed.reference(x, s))

    @opsmith.pointwise(fresh("wrapped"))
    def wrapped(x: Tensor) -> Tensor:
        return torch.full_like(x, 300, dtype=torch.int32).to(torch.uint8).float() + x

    assert torch.equal(wrapped(x), wrapped.reference(x))


def test_what_is_changed_in_place_does_not_grow(fresh: Callable[[str], str]) -> None:
    @opsmith.pointwise(fresh("grows"))
    def grows(x: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        z += y
        return z

    check(grows, leaf(3, 8), leaf(8))
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        grows(leaf(8), leaf(3, 8))


def test_a_choice_that_torch_refuses_is_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        opsmith.ops.gelu(torch.ones(3), "foo")


def test_an_out_of_another_shape_is_reported_so() -> None:
    with pytest.raises(OutMismatchError, match=r"the result is .*\(3,\), but out= is .*\(4,\)"):
        opsmith.ops.elementwise_mult(torch.ones(3), torch.ones(3), out=torch.ones(4))
