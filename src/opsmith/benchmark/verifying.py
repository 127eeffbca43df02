"""Contenders are compared with the reference before they are timed, and again after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch

from ..checks.accuracy.budget import HALF_TYPES
from ..checks.accuracy.evaluate import Change, Named, evaluate, weights_at
from ..checks.accuracy.truth import Comparison, Rounding, Truth
from ..errors import WrongResultError
from ..reference.purity import draws_random_numbers
from .contenders import BASELINES, Function
from .workload import Workload

VERIFIED_WHOLE = 1 << 20
"""Results of up to this many elements are compared with the reference in float64. Larger ones are compared in float32,
and for a pointwise op SAMPLED random elements in float64."""
SAMPLED = 1 << 16


class Verifier:
    """Compares contenders with the reference on one workload."""

    def __init__(self, workload: Workload, direction: str) -> None:
        self._workload, self._gradients = workload, direction != "forward"
        self._pointwise = workload.op._families.default.forward.reference.elementwise

    def verify(self, name: str, function: Function) -> None:
        """Raises WrongResultError unless a contender computes what the reference does: the op and its kernels within
        rounding error, baselines within a looser bound. Eager is the reference."""
        if name != "eager" and (wrong := self._wrong(name, function)) is not None:
            raise WrongResultError(self._workload.op.name, name, self._workload.name, wrong)

    def verify_again(self, name: str, function: Function) -> None:
        """The same after timing, on other numbers: this finds a contender that caches results."""
        if (wrong := self._later._wrong(name, function)) is not None:
            numbers = "" if self._later is self else " with other numbers"
            since = f"called again{numbers}, after it was timed: {wrong}"
            raise WrongResultError(self._workload.op.name, name, self._workload.name, since)

    @cached_property
    def _later(self) -> Verifier:
        """Compares on other numbers, or on the same if the reference accepts no others."""
        op = self._workload.op
        try:
            other = self._workload.halved()
            evaluate(op.signature.arguments, op._inline_call, other.values, gradients=self._gradients)
        except Exception:
            return self
        return Verifier(other, "backward" if self._gradients else "forward")

    def _wrong(self, name: str, function: Function) -> str | None:
        """What is wrong with a contender, which runs on copies."""
        workload = self._workload
        arguments, given = workload.op.signature.arguments, workload.copied()
        incoming: list[tuple[torch.Tensor, torch.Tensor]] = []

        def record(gradient: torch.Tensor) -> torch.Tensor:
            incoming.append((gradient, gradient.clone()))
            return gradient

        mine = evaluate(arguments, function, given, gradients=self._gradients, lay=record)
        for argument, value, before in zip(arguments, given, workload.values, strict=True):
            if not argument.mutated and not _unchanged(value, before):
                return f"it writes to {argument.name}, which is an input"
        if not all(torch.equal(*pair) for pair in incoming):
            return "its backward writes to the incoming gradient"
        if name in BASELINES:
            return _far_off(workload, mine, self._gradients)
        if workload.elements > VERIFIED_WHOLE:
            return _far_off(workload, mine, self._gradients) or self._wrong_elements(mine)
        return _first_wrong(self._whole.beside(mine))

    @cached_property
    def _whole(self) -> Truth:
        return self._truth(self._workload.values, Rounding(pointwise=self._pointwise))

    def _truth(self, values: Sequence[Any], rounding: Rounding, lay: Change | None = None) -> Truth:
        op = self._workload.op
        return Truth(op.signature.arguments, op._inline_call, values, self._gradients, rounding, lay=lay)

    def _wrong_elements(self, mine: list[Named]) -> str | None:
        """What is wrong with elements of a pointwise op, each compared within its own rounding error: relative to the
        largest number, a small one could have any value."""
        shape = self._shape
        if not self._pointwise or any(result.shape != shape for result in self._workload.results):
            return None
        given = [(what, self._picked(tensor)) for what, tensor in mine if tensor is not None and tensor.shape == shape]
        return _first_wrong(self._sampled.beside(given))

    @cached_property
    def _sampled(self) -> Truth:
        signature, values, places = self._workload.op.signature, self._workload.values, self._places
        flat = [None if tensor is None else self._picked(tensor) for tensor in signature.flatten(values)]
        fewer = signature.unflatten(values, flat)
        return self._truth(fewer, Rounding(pointwise=True), lambda weight: weights_at(places, weight.dtype))

    @cached_property
    def _shape(self) -> torch.Size:
        return torch.Size(torch.broadcast_shapes(*(tensor.shape for tensor in self._workload.tensors)))

    @cached_property
    def _places(self) -> torch.Tensor:
        drawn = torch.randint(self._shape.numel(), (SAMPLED,), generator=torch.Generator().manual_seed(0))
        return drawn.to(self._workload.device)

    def _picked(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.expand(self._shape)[torch.unravel_index(self._places, self._shape)]


def is_random(workload: Workload) -> bool:
    """Whether the reference draws random numbers, so that results cannot be compared."""
    arguments, reference = workload.op.signature.arguments, workload.op._inline_call
    return draws_random_numbers(
        lambda: evaluate(arguments, reference, workload.values, gradients=False), workload.tensors
    )


def _first_wrong(compared: Iterable[Comparison]) -> str | None:
    return next((f"{each.what}: {each.message}" for each in compared if not each), None)


def _far_off(workload: Workload, mine: list[Named], gradients: bool) -> str | None:
    """What is wrong in comparison with the reference in float32 (float64 for float64), relative to its largest number:
    16 ULP are allowed; in half types 2 ULP and four times the reference's own error. At a discontinuity a number
    may also agree with the reference in float64."""
    arguments, reference, values = workload.op.signature.arguments, workload.op._inline_call, workload.values
    half = workload.dtype in HALF_TYPES
    theirs = evaluate(arguments, reference, values, dtype=torch.float32 if half else None, gradients=gradients)
    rounded = evaluate(arguments, reference, values, gradients=gradients) if half else theirs
    exact: list[tuple[str, torch.Tensor | None]] = []
    for place, ((what, given), (_, right), (_, eager)) in enumerate(zip(mine, theirs, rounded, strict=True)):
        if given is None or right is None or eager is None:  # None is a gradient of zeros
            other = right if given is None else given
            if other is not None and bool(other.any()):
                return f"{what} is None for either the contender or the reference, and not zero for the other"
            continue
        if given.shape != right.shape:
            return f"{what} has shape {tuple(given.shape)}, not {tuple(right.shape)}"
        if not given.is_floating_point():
            if not torch.equal(given, eager):
                return f"{what} differs"
            continue
        finite = right.to(given.dtype).isfinite()
        if not bool(finite.all()) and not _same(given[~finite], right[~finite].to(given.dtype)):
            return f"{what} is not infinite or NaN where it should be"
        # A sum in another order has an error of about the square root of its number of terms.
        terms = max(1, workload.elements // max(1, given.numel()))
        unit = torch.finfo(given.dtype).eps * _largest(right, finite)
        allowed = 2 * unit + 4 * _largest(eager - right, finite & eager.isfinite()) if half else 16 * unit * terms**0.5
        doubtful = finite & ~((given - right).abs() <= allowed)  # true for NaN
        if bool(doubtful.any()):
            exact = exact or evaluate(arguments, reference, values, dtype=torch.float64, gradients=gradients)
            otherwise = exact[place][1]
            assert otherwise is not None
            off = torch.fmin((given - right).abs(), (given - otherwise).abs())  # one may be NaN
            if not bool((off[doubtful] <= allowed).all()):
                return f"{what} is off by {_largest(off, doubtful):.3g}, where {allowed:.3g} would be rounding"
    return None


def _unchanged(value: Any, before: Any) -> bool:
    if isinstance(value, torch.Tensor):
        numbers = value.is_floating_point() or value.is_complex()
        return torch.equal(value, before) or (numbers and _same(value, before))  # with NaN
    return not isinstance(value, (list, tuple)) or all(map(_unchanged, value, before))


def _same(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)


def _largest(tensor: torch.Tensor, chosen: torch.Tensor) -> float:
    return float(torch.where(chosen, tensor, 0).abs().max()) if tensor.numel() else 0.0
