"""What a reference gives for some arguments, in float64 and in the op's dtype, and how accurately that is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch

from ...reference.signature import Argument
from .. import values as call_values
from ..outcome import ReferenceRaises, Skipped, Uncovered, first_line
from . import budget
from .budget import Comparison as Comparison
from .evaluate import Change, Named, evaluate, floating_dtypes
from .variants import STEP, InDouble, Roundings, digits_are_lost, nearby, shaken, strewn

FEW = 16
"""With fewer elements one error means little, since it may be small by chance: it is measured several times."""
DRAWS, MORE_DRAWS = 4, 16
"""The number of such measurements: at first, and before an op is reported as wrong."""
NEARBY = 0.05
"""The largest relative change of the arguments in these measurements."""
MOVES, COINS = 4, 8
"""The least number of evaluations with changed inputs, and of sets of random changes before an op is reported wrong."""
TIES = 256
"""Evaluations before an integer that depends on rounded numbers is reported wrong: the position of the largest of ten
equal numbers may be any of theirs."""
PLATEAU = 4 * torch.finfo(torch.float64).eps
FINE = 1e4
"""Largest error, in ULP, of a reference in a dtype where terms cancel; one that computes in a coarser dtype has errors
of 2^29 ULP of float64, or 2^13 of float32."""

Function = Callable[[Sequence[Any]], Any]
Tensors = list["torch.Tensor | None"]


def mismatch(what: str, message: str) -> Comparison:
    """A comparison that fails whatever the numbers are."""
    return Comparison(what, False, math.inf, 0.0, message)


def assert_all(found: Iterable[Comparison], message: str) -> None:
    """Raises AssertionError with the message and every comparison that failed."""
    wrong = [f"{each.what}: {each.message}" for each in found if not each]
    assert not wrong, f"{message}: " + "; ".join(wrong)


@dataclass(frozen=True)
class Rounding:
    """Where an op rounds. `result`, `gradient`: whether each intermediate may be rounded to a half type, because torch
    computes it. `pointwise`: whether a result depends only on the elements at its position, in one order."""

    result: bool = True
    gradient: bool = True
    pointwise: bool = False
    runs_reference: bool = False
    """Whether the reference was observed to compute the results."""


class NoTruthError(Uncovered):
    """The reference accepts a call, but not in float64, in which the truth is computed."""

    def __init__(self, message: str) -> None:
        super().__init__(f"the reference does not take float64, in which the truth is computed: {message}")


class NotMeasuredError(ReferenceRaises):
    """The reference rejects inputs that are close to a call's."""

    def __init__(self, error: Exception) -> None:
        Skipped.__init__(self, f"for inputs close to a call's, the reference raises {first_line(error)}")


class Truth:
    """What an op's tensors are judged by: `own` is the reference's in the op's dtype, `exact` in float64, and `moved`
    how far each element of `exact` moves when the inputs are rounded. That takes most of the time, and is measured
    only for a tensor that is not `budget.surely_right` without it."""

    def __init__(
        self,
        arguments: Sequence[Argument],
        reference: Function,
        args: Sequence[Any],
        gradients: bool = True,
        rounding: Rounding | None = None,
        only: Collection[int] | None = None,
        lay: Change | None = None,
        figures: bool = False,
        transforms: bool = False,
    ) -> None:
        """`only` and `lay` are those of `evaluate`. `figures`: measure torch's own error in half types even where it
        decides nothing. `transforms`: the reference runs inside torch.func transforms, where a dispatch mode that makes
        tensors crashes the process."""
        self._arguments, self._reference, self._args, self._gradients = arguments, reference, args, gradients
        self._rounding, self._only, self._lay, self._figures = rounding or Rounding(), only, lay, figures
        self._transforms = transforms
        self._dtypes = floating_dtypes(args) or [torch.float32]
        self.dtype = self._dtypes[0]
        self._half = any(dtype in budget.HALF_TYPES for dtype in self._dtypes)
        self._casts_to_single = False
        self.own = self._run_in_own()
        try:
            self.exact = self._named(args, torch.float64)
        except Exception as error:
            raise NoTruthError(first_line(error)) from error
        self._own: Tensors = [tensor for _, tensor in self.own]
        self._exact: Tensors = [tensor for _, tensor in self.exact]
        in_double = self._casts_to_single and self.dtype is torch.float64
        self._loses_digits = in_double and digits_are_lost(self._own, self._exact)
        self._others: list[Tensors] = []
        self._coins = 0

    def beside(self, given: Sequence[Named]) -> list[Comparison]:
        """A Comparison for each tensor given."""
        places = {what: place for place, (what, _) in enumerate(self.own)}
        missing = [what for what, _ in given if what not in places]
        if missing:
            return [mismatch(missing[0], f"the reference gives none: it has {', '.join(places)}")]
        return [self._compared(places[what], mine) for what, mine in given]

    @property
    def moved(self) -> Tensors:
        if self._coins == 0:
            try:
                self._moves = self._moved(coins=1)
                self._coins, self._beside = 1, list(self._others)
                self._errors = self._measured()
            except Exception as error:
                raise NotMeasuredError(error) from error
        return self._moves

    @property
    def is_finite(self) -> bool:
        """Whether the reference gives finite numbers everywhere, in either precision."""
        both = [tensor for tensor in (*self._own, *self._exact) if tensor is not None]
        return all(bool(tensor.isfinite().all()) for tensor in both)

    # --- Evaluations of the reference -----------------------------------------------------------------------------

    def _named(self, args: Sequence[Any], dtype: torch.dtype | None, **options: Any) -> list[Named]:
        function = self._in_double if dtype is torch.float64 else self._reference
        options = {"gradients": self._gradients, "only": self._only, "lay": self._lay, **options}
        return evaluate(self._arguments, function, args, dtype=dtype, **options)

    def _evaluated(self, args: Sequence[Any], dtype: torch.dtype | None, **options: Any) -> Tensors:
        return [tensor for _, tensor in self._named(args, dtype, **options)]

    def _in_double(self, values: Sequence[Any]) -> Any:
        """The reference, in float64 even where it casts to float32."""
        mode = InDouble()
        with mode:
            returned = self._reference(values)
        self._casts_to_single |= mode.casts_to_single
        return returned

    def _run_in_own(self) -> list[Named]:
        """In the op's dtypes; but half types are computed in float32 and rounded once."""
        if self._half and all(dtype in budget.HALF_TYPES for dtype in self._dtypes):
            return self._named(self._args, torch.float32)
        return self._named(self._args, None, change=_lifted if self._half else None)

    def _moved(self, coins: int) -> Tensors:
        """How far each element moves when every input, and every incoming gradient, moves one step of its dtype up or
        down. Computed in float64 with steps of float32's size, and scaled.

        Results of half types are computed in float32 and move by its steps; but a gradient may be computed from stored
        results, and moves by the half type's."""
        order = 1 << (self._tensors_moved() - 1).bit_length()
        for move in range(len(self._others), max(MOVES, coins * order)):
            change = shaken(move // order, move % order, STEP)
            self._others.append(self._evaluated(self._args, torch.float64, change=change))
        moved = self._distances(self._others)
        if self._loses_digits:  # a reference that computes in float32 keeps only float32's digits
            moved = _each(lambda by, exact: by + budget.ulp(exact, torch.float32), moved, self._exact)
        if not self._rounding.pointwise:
            moved = _each(lambda by, exact: by + torch.finfo(self.dtype).eps * _largest(exact), moved, self._exact)
        return _each(self._with_plateaus, moved)

    def _move_more(self) -> None:
        """Moves inputs by more random changes: the changes of the few terms of a sum may cancel by chance. Errors are
        then in larger units."""
        if self._coins == COINS:
            return
        before = self.moved
        self._coins = COINS
        self._moves = _each(torch.maximum, before, self._moved(COINS))

        steps = _each(partial(budget.ulp, dtype=self.dtype), self._exact)
        units = [_each(torch.add, steps, moved) for moved in (before, self.moved)]
        self._errors = _each(lambda errors, former, new: errors * former / new, self._errors, *units)

    def _distances(self, others: Sequence[Tensors]) -> Tensors:
        """How far each element is from the truth in other evaluations: twice the root mean square, scaled from steps of
        float32 to steps of the element's dtype."""

        def distance(place: int, exact: torch.Tensor | None) -> torch.Tensor | None:
            if exact is None or not exact.is_floating_point():
                return None
            found = (tensors[place] for tensors in others)
            same_shape = [t for t in found if t is not None and t.shape == exact.shape]
            # Squares of large distances are infinite, and would allow any error.
            squares = sum((t - exact).square().nan_to_num(nan=0.0, posinf=0.0) for t in same_shape)
            scale = 2 / math.sqrt(len(others)) * self._step(place) / STEP
            return squares.sqrt() * scale if isinstance(squares, torch.Tensor) else None

        return [distance(place, exact) for place, exact in enumerate(self._exact)]

    @cached_property
    def _moved_within(self) -> Tensors:
        """How far each element moves when intermediates are rounded differently: where rows of two are normalised, a
        gradient consists of rounding errors. Slow to compute."""
        others = []
        for seed in range(MOVES):
            with Roundings(seed):
                others.append(self._evaluated(self._args, torch.float64))
        return self._distances(others)

    @cached_property
    def _moved_by_storing(self) -> Tensors:
        """How far each gradient moves when what the forward saves for it is rounded to the half type: 1 - y * y near
        the ends of a tanh is the rounding error of the stored y, in torch's own backward too."""
        coarse = max((dtype for dtype in self._dtypes if dtype in budget.HALF_TYPES), key=lambda d: torch.finfo(d).eps)

        def stored(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(coarse).to(tensor.dtype) if tensor.dtype is torch.float64 else tensor

        with torch.autograd.graph.saved_tensors_hooks(stored, lambda tensor: tensor):
            others = self._evaluated(self._args, torch.float64)
        return _each(lambda one, exact: _apart(one, exact) if exact.is_floating_point() else None, others, self._exact)

    def _with_plateaus(self, moved: torch.Tensor) -> torch.Tensor:
        """An element that does not move at all may have lost its terms: 1 + erf(-7) is 0 in float64 too, where the
        truth is 1e-12. Its error is then a few ULP of the largest input."""
        if bool((moved != 0).all()):
            return moved
        return torch.where(moved == 0, self._last_places(moved), moved)

    def _where_single_is_lost(self, place: int, moved: torch.Tensor) -> torch.Tensor:
        """For float64, which has no wider type: 1 + tanh(-5) has lost five digits in it. Where float32 has lost all its
        digits, float64's error is a few ULP of the largest input."""
        single, exact = self._in_single[place], self._exact[place]
        if single is None or exact is None or single.shape != moved.shape:
            return moved
        lost = (single.to(torch.float64) - exact).abs() >= exact.abs() / 2
        return torch.where(lost, torch.maximum(moved, self._last_places(moved)), moved)

    @cached_property
    def _in_single(self) -> Tensors:
        return self._evaluated(self._rounded(), torch.float32)

    def _last_places(self, moved: torch.Tensor) -> torch.Tensor:
        """A few ULP of float64, of the largest input that an element depends on."""
        floating = call_values.floating(self._arguments, self._args)
        # An infinite input that does not show in the result, as in a clamp, leaves terms of size one.
        sizes = [t.detach().to(torch.float64).abs().nan_to_num(nan=0.0, posinf=1.0) for t in floating if t.numel()]
        scale = torch.zeros((), dtype=torch.float64, device=moved.device)
        for each in sizes:
            scale = torch.maximum(scale, each if self._rounding.pointwise else each.max())
        return PLATEAU * (scale if scale.shape == moved.shape else scale.max())

    def _tensors_moved(self) -> int:
        """The number of floating inputs and incoming gradients."""
        results = [tensor for what, tensor in self.own if _is_result(what) and tensor is not None]
        incoming = self._gradients * sum(tensor.is_floating_point() for tensor in results)
        return max(1, len(call_values.floating(self._arguments, self._args)) + incoming)

    def _step(self, place: int) -> float:
        """The step by which inputs move for one of the tensors: its own dtype's; the coarsest one's where inputs are of
        several dtypes and the reference computes in that."""
        what, own, exact = self.own[place][0], self._own[place], self._exact[place]
        single, coarse = torch.finfo(torch.float32).eps, max(torch.finfo(dtype).eps for dtype in self._dtypes)
        if self._half:
            return single if _is_result(what) else coarse
        if self._loses_digits:
            return single
        if own is None or exact is None or len(self._dtypes) == 1:
            return coarse
        fine = torch.finfo(own.dtype).eps if own.is_floating_point() else coarse
        off = ((own.to(torch.float64) - exact).abs() / exact.abs()).nan_to_num(nan=0.0, posinf=0.0)
        return fine if not off.numel() or float(off.max()) < FINE * fine else coarse

    def _measured(self) -> Tensors:
        """The reference's error for each element in units, where comparing with the truth does not give it: for
        float64, which has no wider type, it is float32's."""
        few = min((tensor.numel() for tensor in self._exact if tensor is not None), default=0) < FEW
        draws = DRAWS if few else 1 if self.dtype == torch.float64 else 0
        if self._half or len(self._dtypes) > 1 or not draws:  # rounding to the half type hides what comes before
            return [None] * len(self._exact)
        drawn = self._drawn(draws)
        if self.dtype == torch.float64:
            return drawn

        def largest(drawn: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
            """For all elements: one element's error may be small by chance where its neighbours' is not."""
            errors = budget.units_of_error(own, exact, moved, own.dtype)
            return torch.full_like(errors, max(budget.largest_regular(drawn), budget.largest_regular(errors)))

        return _each(largest, drawn, self._own, self._exact, self.moved)

    def _drawn(self, draws: int) -> Tensors:
        """The largest error of each element in float32, for several arguments close to these."""
        single = torch.float32
        scales = [torch.finfo(single).eps / self._step(place) for place in range(len(self.moved))]
        moved = [None if by is None else by * scale for by, scale in zip(self.moved, scales, strict=True)]
        largest: Tensors = [None] * len(self._exact)
        for draw in range(draws):
            factor = 1 + NEARBY * draw / draws
            inexact = self._evaluated(self._rounded(), single, draw=draw, change=nearby(factor))
            exact = self._evaluated(self._rounded(), torch.float64, draw=draw, change=nearby(factor, single))
            errors = _each(partial(budget.units_of_error, dtype=single), inexact, exact, moved)
            largest = [_larger(*pair) for pair in zip(largest, errors, strict=True)]
        return largest

    @cached_property
    def _nearby(self) -> Tensors:
        return self._drawn(MORE_DRAWS)

    @cached_property
    def _eager(self) -> Tensors:
        """The reference run in half types, each intermediate rounded. Slow on some CPUs."""
        if self._half:
            try:
                return self._evaluated(self._args, None)
            except RuntimeError:  # torch has no such kernel
                pass
        return [None] * len(self._exact)

    def _rounded(self) -> list[Any]:
        """The arguments, floating tensors rounded to float32."""
        return call_values.mapped(
            self._arguments,
            self._args,
            lambda t: t.to(torch.float32).to(t.dtype) if t.is_floating_point() else t,
        )

    # --- Comparison -----------------------------------------------------------------------------------------------

    def _compared(self, place: int, mine: torch.Tensor | None) -> Comparison:
        what, own, exact = self.own[place][0], self._own[place], self._exact[place]
        if mine is None or own is None or exact is None:
            # Torch returns None for a gradient that is always zero; the op may return zeros.
            size = max(_magnitude(mine), _magnitude(own))
            side = "the op gives none" if mine is None else "the reference gives none"
            message = f"one side has no gradient: {side}, the other up to {size:.3g}"
            return Comparison(what, size == 0.0, size, 0.0, message)
        if mine.shape != own.shape:
            return mismatch(what, f"shape {tuple(mine.shape)} where the reference gives {tuple(own.shape)}")
        if mine.dtype != own.dtype and not self._half:
            return mismatch(what, f"{mine.dtype} where the reference gives {own.dtype}")
        once = self._rounding.pointwise and _is_result(what)
        if not (self._half and (once or self._figures)) and (sure := budget.surely_right(what, mine, own, exact)):
            return sure
        moved = self.moved[place]
        if not mine.is_floating_point() or moved is None:
            return self._compared_as_equal(what, place, mine)
        terms = sum(t.numel() for t in call_values.present(self._arguments, self._args))
        terms += sum(result.numel() for name, result in self.own if result is not None and _is_result(name))
        expected = budget.Expected(own, exact, moved, self._errors[place], 0.0, terms / max(1, own.numel()), once)
        return self._judged(what, mine, expected, place)

    def _judged(self, name: str, mine: torch.Tensor, expected: budget.Expected, place: int) -> Comparison:
        """Slow measurements are made only where they may change the judgement."""
        found = budget.judge(name, mine, expected)
        if not found.ok:
            for wider in self._widened(name, expected, place):
                found, expected = budget.judge(name, mine, wider), wider
                if found.ok:
                    break
        if self._half:
            return self._judged_beside_eager(name, mine, expected, place, found)
        if found.ok:
            return found
        near = self._nearby[place]
        if near is not None and near.numel() < FEW:
            near = torch.full_like(near, budget.largest_regular(near))
        return budget.judge(name, mine, replace(expected, nearby=near))

    def _widened(self, name: str, expected: budget.Expected, place: int) -> Iterator[budget.Expected]:
        """The same expectation, with one more effect of rounding each time."""
        self._move_more()
        moved = self.moved[place]
        assert moved is not None
        expected = replace(expected, moved=moved, errors=self._errors[place])
        yield expected
        if self._transforms:
            return
        if self._half and not _is_result(name) and (stored := self._moved_by_storing[place]) is not None:
            expected = replace(expected, moved=expected.moved + stored)
            yield expected
        if self._rounding.pointwise and self.dtype is torch.float64:
            yield replace(expected, moved=self._where_single_is_lost(place, expected.moved))
        if not self._rounding.pointwise and (within := self._moved_within[place]) is not None:
            yield replace(expected, moved=expected.moved + within)

    def _judged_beside_eager(
        self, name: str, mine: torch.Tensor, expected: budget.Expected, place: int, found: Comparison
    ) -> Comparison:
        """Half types: where torch computes a tensor, it may be as inaccurate as torch."""
        eager = self._eager[place] if self._figures or not found.ok else None
        if eager is None or not eager.is_floating_point():
            return found
        in_ulps = budget.units_of_error(eager, expected.exact, torch.zeros_like(expected.moved), eager.dtype)
        errors = budget.units_of_error(eager, expected.exact, expected.moved, eager.dtype)
        excused = self._rounding.result if _is_result(name) else self._rounding.gradient
        excused = excused or len(self._dtypes) > 1  # which dtype is cast to which, and when, is unspecified
        if excused and mine.dtype == eager.dtype:
            as_eager = (mine == eager) | (mine.isnan() & eager.isnan())
            if bool(as_eager.all()):
                return replace(found, ok=True, message="")
            mine = torch.where(as_eager, expected.own.to(mine.dtype), mine)
        if self._rounding.runs_reference and _is_result(name):
            # torch rounds intermediates differently in its vector loop and in the remaining elements: to the half type,
            # so that inputs move a result by that type's steps.
            coarse = max(torch.finfo(dtype).eps for dtype in self._dtypes)
            expected = replace(expected, moved=expected.moved * (coarse / self._step(place)))
        rounds = budget.largest_regular(errors) if excused else 0.0
        return budget.judge(name, mine, replace(expected, eager=rounds, reference_ulps=budget.largest_regular(in_ulps)))

    def _compared_as_equal(self, what: str, place: int, mine: torch.Tensor) -> Comparison:
        """Numbers that are not rounded must equal the reference's; or, where it rounds or compares something on the
        way, those for inputs close to these."""
        candidates = [self._own[place], self._exact[place], *(other[place] for other in self._beside)]
        if self._half and (self._rounding.result or len(self._dtypes) > 1):  # torch may have computed it
            candidates.append(self._eager[place])
        right = _is_one_of(mine, candidates)
        for seed in range(1, TIES):  # of many ties, some are broken in the same way by chance
            if bool(right.all()):
                break
            moved = self._evaluated(self._args, torch.float64, change=strewn(seed, STEP), gradients=False)
            right |= _is_one_of(mine, [moved[place]])
        if bool(right.all()):
            return Comparison(what, True)
        wrong = int((~right).sum())
        first = tuple((~right).nonzero()[0].tolist())
        theirs = self._own[place]
        assert theirs is not None
        message = f"values differ: {mine[first].item()} where the reference gives {theirs[first].item()}"
        return mismatch(what, f"{message}; {wrong} of {mine.numel()} elements")


def _each(function: Callable[..., torch.Tensor | None], *columns: Tensors) -> Tensors:
    """`function` of the tensors at each place; None where one is absent or shapes differ."""
    return [
        None if any(tensor is None or tensor.shape != tensors[0].shape for tensor in tensors) else function(*tensors)
        for tensors in zip(*columns, strict=True)
    ]


def _apart(tensor: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    return (tensor - exact).abs().nan_to_num(nan=0.0, posinf=0.0)


def _larger(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    return torch.maximum(one, other) if one is not None and other is not None else other if one is None else one


def _largest(tensor: torch.Tensor) -> float | torch.Tensor:
    finite = tensor.abs()[tensor.isfinite()]
    return finite.max() if finite.numel() else 0.0


def _magnitude(tensor: torch.Tensor | None) -> float:
    return float(tensor.abs().max()) if tensor is not None and tensor.numel() else 0.0


def _is_one_of(mine: torch.Tensor, candidates: Sequence[torch.Tensor | None]) -> torch.Tensor:
    right = torch.zeros(mine.shape, dtype=torch.bool, device=mine.device)
    for each in candidates:
        if each is not None and each.shape == mine.shape:
            right |= mine == each.to(mine.dtype)
    return right


def _is_result(what: str) -> bool:
    return not what.startswith("gradient")


def _lifted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float32) if tensor.dtype in budget.HALF_TYPES else tensor
