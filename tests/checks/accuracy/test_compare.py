"""compare finds wrong results and gradients, and accepts right ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, Sample
from opsmith.checks import compare, compare_samples
from opsmith.checks.accuracy.evaluate import weights_of

Fresh = Callable[[str], str]


def softsign(x: Tensor, scale: float = 1.0) -> Tensor:
    return x / (1 + x.abs()) * scale


def declared(fresh: Fresh, kernel: Callable[..., Any] | None, backward: Callable[..., Any] | None = None) -> Op:
    op = opsmith.op(fresh("softsign"))(softsign)

    @op.register_samples
    def _(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
        yield Sample(args=(torch.randn(40, 3, device=device, dtype=dtype), 2.0), name="sample")

    if kernel is not None:
        op.register_kernel("cpu", kernel)
    if backward is not None:
        op.register_backward("cpu", backward)
    return op


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_results_are_given_the_same_gradient_in_every_dtype(dtype: torch.dtype) -> None:
    """One in a million of cos(n) + 1/2 is so small that float16 has fewer digits for it than bfloat16."""
    count = 1 << 21
    exact = weights_of(torch.empty(count, dtype=torch.float64))
    assert torch.equal(weights_of(torch.empty(count, dtype=dtype)).double(), exact)
    assert int((exact.abs() < torch.finfo(torch.float16).tiny).sum()) > 10


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_sound_kernel_passes(fresh: Fresh, dtype: torch.dtype) -> None:
    op = declared(fresh, lambda x, scale: (x.float() / (1 + x.float().abs()) * scale).to(x.dtype) if x.dtype in
                  (torch.float16, torch.bfloat16) else scale * (x / (x.abs() + 1)))  # fmt: skip
    assert all(compare_samples(op, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "kernel",
    [
        lambda x, scale: x / (1 + x.abs()) * scale * (1 + 1e-5),
        lambda x, scale: (x / (1 + x.abs()) * scale).half().to(x.dtype),
        lambda x, scale: x / (1 + x.abs()),
        lambda x, scale: torch.where(x > 2, torch.nan, x / (1 + x.abs()) * scale),
    ],
    ids=["slightly off", "rounded to half", "forgets the scale", "NaN somewhere"],
)
def test_wrong_values_are_found(fresh: Fresh, kernel: Callable[..., Any], dtype: torch.dtype) -> None:
    found = compare_samples(declared(fresh, kernel), dtype=dtype)
    wrong = [each for each in found if not each]
    assert [each.what for each in wrong] == ["sample: result"]
    assert "allowed" in wrong[0].message or "NaN" in wrong[0].message


@pytest.mark.parametrize(
    "backward",
    [
        lambda grads, x, scale, *, needs: grads[0] * scale / (1 + x.abs()),
        lambda grads, x, scale, *, needs: None,
        lambda grads, x, scale, *, needs: grads[0] / (1 + x.abs()) ** 2,
    ],
    ids=["power forgotten", "zero", "forgets the scale"],
)
def test_wrong_gradients_are_found(fresh: Fresh, backward: Callable[..., Any]) -> None:
    found = compare_samples(declared(fresh, None, backward), dtype=torch.float64)
    assert [bool(each) for each in found] == [True, False]
    assert found[1].what == "sample: gradient of x"


def test_a_right_gradient_passes(fresh: Fresh) -> None:
    op = declared(fresh, None, lambda grads, x, scale, *, needs: grads[0] * scale / (1 + x.abs()) ** 2)
    assert all(compare_samples(op, dtype=torch.float64))
    assert all(compare_samples(op, dtype=torch.float32))


def test_integer_results_must_be_equal(fresh: Fresh) -> None:
    def rounded(x: Tensor) -> Tensor:
        return (x * 3).round().long()

    op = opsmith.op(fresh("rounded"))(rounded)
    op.register_samples(lambda device, dtype: iter([Sample(args=(torch.linspace(-1, 1, 9, dtype=dtype),))]))
    assert all(compare_samples(op))
    op.register_kernel("cpu", lambda x: (x * 3).floor().long())
    messages = [each.message.partition(":")[0] for each in compare_samples(op)]
    assert messages == ["values differ", "one side has no gradient"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(8))
def test_a_gradient_summed_in_another_order_passes_and_one_with_a_term_missing_does_not(
    fresh: Fresh, dtype: torch.dtype, seed: int
) -> None:
    def scaled(x: Tensor, scale: Tensor) -> Tensor:
        return x**3 * scale

    def declared_with(total: Callable[[Tensor], Tensor]) -> Op:
        op = opsmith.op(fresh("scaled"))(scaled)
        torch.manual_seed(seed)
        x, scale = torch.randn(300, dtype=dtype), torch.randn((), dtype=dtype)
        x[-1] = 0.5  # the term that is to be missing: not so small that rounding hides it
        op.register_samples(lambda device, dtype: iter([Sample(args=(x, scale))]))

        def backward(grads, x, scale, *, needs):  # type: ignore[no-untyped-def]
            return grads[0] * scale * 3 * x**2, total(grads[0] * x**3)

        op.register_backward("cpu", backward)
        return op

    assert all(compare_samples(declared_with(lambda terms: terms.reshape(20, 15).sum(0).sum()), dtype=dtype))
    found = compare_samples(declared_with(lambda terms: terms[:-1].sum()), dtype=dtype)
    assert [bool(each) for each in found] == [True, True, False]


@pytest.mark.parametrize("seed", [8, 10])
def test_a_sum_of_few_terms_that_cancel_passes(seed: int) -> None:
    """The steps by which its terms move may cancel as well: of 4097 such sums, those of one set of coins in some."""
    numbers = torch.Generator().manual_seed
    low, high = {8: ((-3.23, 3.74), (-3.43, 3.35)), 10: ((-3.75, 4.03), (-3.54, 3.1))}[seed]
    a = torch.empty((4097, 1), dtype=torch.float64).uniform_(*low, generator=numbers(16 * seed)).float()
    b = torch.empty((1, 3), dtype=torch.float64).uniform_(*high, generator=numbers(16 * seed + 1)).float()
    compared = compare(opsmith.ops.elementwise_mult, Sample((a, b)))
    assert [f"{each.what}: {each.message}" for each in compared if not each] == []
