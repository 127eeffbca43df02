"""What a reference gives for some arguments, exactly and in the op's own dtype, and how certain that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from ...reference.signature import Argument, flatten
from ..outcome import first_line
from . import budget
from .doubling import InDouble, digits_are_lost
from .evaluate import Change, Named, evaluate, floating_dtypes
from .shaking import STEP, Roundings, each_tensor, nearby, shaken, strewn

FEW = 16
"""With fewer numbers one error says little, since it may be small by luck: it is measured several times."""
DRAWS, MORE_DRAWS = 4, 16
"""At how many places: at first, and before an op is said to be wrong."""
NEARBY = 0.05
"""How far away the farthest of them is."""
MOVES, COINS = 4, 8
"""At least so many, and one for each tensor of the call; before an op is said to be wrong, by so many sets of coins."""
TIES = 256
"""And so many before a number that is not rounded itself, but is of rounded ones, is said to be wrong: the place of the
largest of ten equal numbers may be any of theirs."""
PLATEAU = 4 * torch.finfo(torch.float64).eps
FINE = 1e4
"""Units in the last place that a reference in a dtype may be off where terms cancel; one that computes in a coarser
dtype is off by 2^29 of float64's, and 2^13 of float32's."""

Function = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Comparison:
    """One tensor of the op beside the reference's. Errors are in the units of budget.py, `ulps` in the last place:
    the op's largest, and the reference's where it is known."""

    what: str
    ok: bool
    error: float
    allowed: float
    message: str = ""
    ulps: float = 0.0
    reference_ulps: float | None = None

    def __bool__(self) -> bool:
        return self.ok


def assert_all(found: Iterable[Comparison], message: str) -> None:
    """Raises AssertionError with the message and every comparison that does not hold."""
    wrong = [f"{each.what}: {each.message}" for each in found if not each]
    assert not wrong, f"{message}: " + "; ".join(wrong)


@dataclass(frozen=True)
class Rounding:
    """Where an op rounds. `result`, `gradient`: whether each intermediate may be rounded to a half type, as torch does
    it, for torch is what runs there. `pointwise`: whether its results depend on single elements, in one order only."""

    result: bool = True
    gradient: bool = True
    pointwise: bool = False
    runs_reference: bool = False
    """Whether the reference itself was seen to compute the results."""


class NoTruthError(Exception):
    """The reference takes a call, but not in float64, in which the truth is computed."""

    def __init__(self, said: str) -> None:
        super().__init__(f"the reference does not take float64, in which the truth is computed: {said}")


class Truth:
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
        """`figures`: torch's own error in half types is asked for too, though it decides nothing. `transforms`: whether
        the reference runs inside torch.func's, where a dispatch mode that makes tensors ends the process."""
        self._arguments, self._reference, self._args, self._gradients = arguments, reference, args, gradients
        self._rounding, self._only, self._lay, self._figures = rounding or Rounding(), only, lay, figures
        self._transforms = transforms
        self._dtypes = floating_dtypes(args) or [torch.float32]
        self.dtype = self._dtypes[0]
        self._half = any(dtype in budget.HALF_TYPES for dtype in self._dtypes)
        self._asks_for_single = False
        self.own = self._run_in_own(args)
        try:
            self.exact = self._evaluated(args, torch.float64)
        except Exception as error:
            raise NoTruthError(first_line(error)) from error
        self._loses_digits = (
            self._asks_for_single and self.dtype is torch.float64
            and digits_are_lost((tensor for _, tensor in self.own), (tensor for _, tensor in self.exact))
        )  # fmt: skip
        self._others: list[list[Named]] = []
        self.moved = self._moved(coins=1)
        self._coins, self._beside = 1, list(self._others)
        self._errors = self._measured()
        self._nearby: list[torch.Tensor | None] | None = None
        self._count = sum(t.numel() for t in flatten(arguments, args) if t is not None)
        self._count += sum(result.numel() for what, result in self.own if result is not None and _is_result(what))

    def beside(self, given: Sequence[Named], prefix: str = "") -> list[Comparison]:
        """A Comparison for each tensor that was given."""
        places = {what: place for place, (what, _) in enumerate(self.own)}
        missing = [what for what, _ in given if what not in places]
        if missing:
            message = f"the reference gives none: it has {', '.join(places)}"
            return [Comparison(prefix + missing[0], False, float("inf"), 0.0, message)]
        return [self._judged(places[what], mine, prefix) for what, mine in given]

    @property
    def is_finite(self) -> bool:
        """Whether the reference gives numbers everywhere, in either precision."""
        both = [tensor for _, tensor in (*self.own, *self.exact) if tensor is not None]
        return all(bool(tensor.isfinite().all()) for tensor in both)

    def _evaluated(
        self,
        args: Sequence[Any],
        dtype: torch.dtype | None,
        draw: int = 0,
        change: Change | None = None,
        gradients: bool = True,
    ) -> list[Named]:
        return evaluate(
            self._arguments,
            self._in_double if dtype is torch.float64 else self._reference,
            args,
            dtype=dtype,
            gradients=self._gradients and gradients,
            draw=draw,
            change=change,
            only=self._only,
            lay=self._lay,
        )

    def _in_double(self, values: Sequence[Any]) -> Any:
        """Also where the reference computes in float32 whatever it is given."""
        mode = InDouble()
        with mode:
            returned = self._reference(values)
        self._asks_for_single |= mode.was_asked
        return returned

    def _run_in_own(self, args: Sequence[Any]) -> list[Named]:
        """In the op's dtypes; but the oracle of half types computes in float32 and rounds once."""
        if self._half and all(dtype in budget.HALF_TYPES for dtype in self._dtypes):
            return self._evaluated(args, torch.float32)
        return self._evaluated(args, None, change=_lifted if self._half else None)

    def _moved(self, coins: int) -> list[torch.Tensor | None]:
        """How far each element goes when every input, and every gradient of a result, goes one step of its dtype up or
        down. Found in float64 by steps of float32's size, and scaled.

        Results of half types are computed in float32, and move by its steps; but a gradient may be computed from
        results as they are stored, and moves by the half type's."""
        order = 1 << (self._tensors_moved() - 1).bit_length()
        for move in range(len(self._others), max(MOVES, coins * order)):
            change = shaken(move // order, move % order, STEP)
            self._others.append(self._evaluated(self._args, torch.float64, change=change))
        moved = self._away(self._others)
        if self._loses_digits:
            moved = [self._with_lost_digits(*pair) for pair in zip(moved, self.exact, strict=True)]
        if self._rounding.pointwise:
            return [self._with_plateaus(each) for each in moved]
        return [self._with_plateaus(self._with_largest(*pair)) for pair in zip(moved, self.exact, strict=True)]

    def _move_more(self) -> None:
        """By more coins: what the few terms of a sum move it by may cancel by luck. Errors are then of larger units."""
        if self._coins == COINS:
            return
        self._coins, before = COINS, self.moved
        self.moved = [
            None if one is None or other is None else torch.maximum(one, other)
            for one, other in zip(before, self._moved(COINS), strict=True)
        ]
        for index, ((_, exact), errors) in enumerate(zip(self.exact, self._errors, strict=True)):
            former, moved = before[index], self.moved[index]
            if errors is not None and exact is not None and former is not None and moved is not None:
                steps = budget.ulp(exact, self.dtype)
                self._errors[index] = errors * (steps + former) / (steps + moved)

    def _away(self, others: Sequence[Sequence[Named]]) -> list[torch.Tensor | None]:
        """How far each element is from the truth in others, twice the root of the mean of squares; as if they had moved
        by steps of the element's dtype, not of float32."""
        squares: list[Any] = [None] * len(self.exact)
        for each in others:
            for index, (_, tensor) in enumerate(each):
                exact = self.exact[index][1]
                if tensor is None or exact is None or not exact.is_floating_point() or tensor.shape != exact.shape:
                    continue
                square = (tensor - exact).square().nan_to_num(nan=0.0, posinf=0.0)
                squares[index] = square if squares[index] is None else squares[index] + square
        scales = [2 / math.sqrt(len(others)) * self._step(place) / STEP for place in range(len(self.exact))]
        return [None if each is None else each.sqrt() * scale for each, scale in zip(squares, scales, strict=True)]

    @cached_property
    def _moved_within(self) -> list[torch.Tensor | None]:
        """How far each element goes when what is computed on the way is rounded otherwise: where rows of two are
        normalised, a gradient is what little the roundings have left. It takes a while."""
        others = []
        for seed in range(MOVES):
            with Roundings(seed):
                others.append(self._evaluated(self._args, torch.float64))
        return self._away(others)

    @cached_property
    def _moved_by_storing(self) -> list[torch.Tensor | None]:
        """How far each gradient goes when what the forward keeps for it is rounded to the half type: 1 - y * y near the
        ends of a tanh is all rounding of the stored y, in torch's own backward too."""
        coarse = max((dtype for dtype in self._dtypes if dtype in budget.HALF_TYPES), key=lambda d: torch.finfo(d).eps)

        def stored(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(coarse).to(tensor.dtype) if tensor.dtype is torch.float64 else tensor

        with torch.autograd.graph.saved_tensors_hooks(stored, lambda tensor: tensor):
            others = self._evaluated(self._args, torch.float64)
        return [
            None if other is None or exact is None or other.shape != exact.shape or not exact.is_floating_point()
            else (other - exact).abs().nan_to_num(nan=0.0, posinf=0.0)
            for (_, other), (_, exact) in zip(others, self.exact, strict=True)
        ]  # fmt: skip

    def _with_plateaus(self, moved: torch.Tensor | None) -> torch.Tensor | None:
        """What does not move at all may be no more than what is left of its terms: 1 + erf(-7) is 0 in float64 too,
        where the truth is 1e-12. It is known to a few last places of the largest input there."""
        if moved is None or bool((moved != 0).all()):
            return moved
        return torch.where(moved == 0, self._last_places(moved), moved)

    def _where_single_is_lost(self, place: int, moved: torch.Tensor) -> torch.Tensor:
        """For float64, for which there is no wider type: 1 + tanh(-5) has lost five digits in it. Where float32
        has lost them all, it too is known to a few last places of the largest input."""
        (_, single), (_, exact) = self._in_single[place], self.exact[place]
        if single is None or exact is None or single.shape != moved.shape:
            return moved
        lost = (single.to(torch.float64) - exact).abs() >= exact.abs() / 2
        return torch.where(lost, torch.maximum(moved, self._last_places(moved)), moved)

    @cached_property
    def _in_single(self) -> list[Named]:
        return self._evaluated(self._rounded(), torch.float32)

    def _last_places(self, moved: torch.Tensor) -> torch.Tensor:
        """Of the largest input that an element is of, in float64."""
        floating = [t for t in flatten(self._arguments, self._args) if t is not None and t.is_floating_point()]
        # Of what is infinite and leaves no trace, as in a clamp, the terms that are left may be of size one.
        sizes = [t.detach().to(torch.float64).abs().nan_to_num(nan=0.0, posinf=1.0) for t in floating if t.numel()]
        scale = torch.zeros((), dtype=torch.float64, device=moved.device)
        for each in sizes:
            scale = torch.maximum(scale, each if self._rounding.pointwise else each.max())
        if scale.shape != moved.shape:
            scale = scale.max()
        return PLATEAU * scale

    def _tensors_moved(self) -> int:
        """Floating inputs, and gradients of results."""
        inputs = sum(t is not None and t.is_floating_point() for t in flatten(self._arguments, self._args))
        results = [tensor for what, tensor in self.own if _is_result(what) and tensor is not None]
        return max(1, inputs + self._gradients * sum(tensor.is_floating_point() for tensor in results))

    def _with_lost_digits(self, moved: torch.Tensor | None, exact: Named) -> torch.Tensor | None:
        """Of float64, a reference that computes in float32 keeps but that one's last places."""
        return None if moved is None or exact[1] is None else moved + budget.ulp(exact[1], torch.float32)

    def _with_largest(self, moved: torch.Tensor | None, exact: Named) -> torch.Tensor | None:
        _, tensor = exact
        if moved is None or tensor is None or not tensor.numel():
            return moved
        largest = tensor.abs()[tensor.isfinite()]
        return moved + torch.finfo(self.dtype).eps * (largest.max() if largest.numel() else 0.0)

    def _step(self, place: int) -> float:
        """By how much inputs are moved for one of the tensors: as its own dtype does it; but as the coarsest does it
        where inputs are of several dtypes, and the reference itself computes in that."""
        (what, own), (_, exact) = self.own[place], self.exact[place]
        single, coarse = torch.finfo(torch.float32).eps, max(torch.finfo(dtype).eps for dtype in self._dtypes)
        if self._half:
            return single if _is_result(what) else coarse
        if self._loses_digits:
            return single
        if own is None or exact is None or len(self._dtypes) == 1:
            return coarse
        fine = _eps(own, coarse)
        off = ((own.to(torch.float64) - exact).abs() / exact.abs()).nan_to_num(nan=0.0, posinf=0.0)
        return fine if not off.numel() or float(off.max()) < FINE * fine else coarse

    def _measured(self) -> list[torch.Tensor | None]:
        """The reference's error for each element in units, where a comparison with the truth does not give it: for
        float64, which has no wider type, it is that of float32."""
        unknown: list[torch.Tensor | None] = [None] * len(self.exact)
        if self._half or len(self._dtypes) > 1:  # rounding to the half type hides what comes before
            return unknown
        few = min((tensor.numel() for _, tensor in self.exact if tensor is not None), default=0) < FEW
        draws = DRAWS if few else 1 if self.dtype == torch.float64 else 0
        largest = self._drawn(draws) if draws else unknown
        if self.dtype == torch.float64:
            return largest
        for index, (_, own) in enumerate(self.own):
            theirs, moved, before = self.exact[index][1], self.moved[index], largest[index]
            if own is not None and theirs is not None and moved is not None and before is not None:
                errors = budget.units_of_error(own, theirs, moved, own.dtype)
                # One element's error may be small by luck where its neighbours' is not.
                largest[index] = torch.maximum(before, errors).fill_(
                    max(budget.largest_regular(before), budget.largest_regular(errors))
                )
        return largest

    def _drawn(self, draws: int) -> list[torch.Tensor | None]:
        """The largest errors of each element in float32, for arguments a little beside these."""
        narrow = torch.float32
        largest: list[torch.Tensor | None] = [None] * len(self.exact)
        for draw in range(draws):
            factor = 1 + NEARBY * draw / draws
            inexact = self._evaluated(self._rounded(), narrow, draw, nearby(factor))
            exact = self._evaluated(self._rounded(), torch.float64, draw, nearby(factor, narrow))
            for index, ((_, mine), (_, theirs)) in enumerate(zip(inexact, exact, strict=True)):
                moved = self.moved[index]
                if mine is None or theirs is None or moved is None or not mine.shape == theirs.shape == moved.shape:
                    continue
                scale = torch.finfo(narrow).eps / self._step(index)
                errors, before = budget.units_of_error(mine, theirs, moved * scale, narrow), largest[index]
                largest[index] = errors if before is None else torch.maximum(before, errors)
        return largest

    @cached_property
    def _eager(self) -> list[torch.Tensor | None]:
        """The reference run in a half type, each intermediate rounded. Some CPUs take long for that."""
        unknown: list[torch.Tensor | None] = [None] * len(self.exact)
        if not self._half:
            return unknown
        try:
            eager = self._evaluated(self._args, None)
        except RuntimeError:  # torch has no such kernel
            return unknown
        return [tensor for _, tensor in eager]

    def _rounded(self) -> list[Any]:
        """The arguments with floating tensors that float32 holds."""
        return [
            each_tensor(value, lambda t: t.to(torch.float32).to(t.dtype) if t.is_floating_point() else t)
            for value in self._args
        ]

    def _judged(self, place: int, mine: torch.Tensor | None, prefix: str) -> Comparison:
        (name, own), (_, exact) = self.own[place], self.exact[place]
        what, moved = prefix + name, self.moved[place]
        if mine is None or own is None or exact is None:
            # Torch says None where a gradient is zero by structure; the op may say zero.
            left = 0.0 if mine is None else float(mine.abs().max()) if mine.numel() else 0.0
            right = 0.0 if own is None else float(own.abs().max()) if own.numel() else 0.0
            side = "the op gives none" if mine is None else "the reference gives none"
            message = f"one side has no gradient: {side}, the other up to {max(left, right):.3g}"
            return Comparison(what, left == right == 0.0, max(left, right), 0.0, message)
        if mine.shape != own.shape:
            message = f"shape {tuple(mine.shape)} beside {tuple(own.shape)}"
            return Comparison(what, False, float("inf"), 0.0, message)
        if mine.dtype != own.dtype and not self._half:
            return Comparison(what, False, float("inf"), 0.0, f"{mine.dtype} where the reference gives {own.dtype}")
        if not mine.is_floating_point() or moved is None:
            return self._equal(what, place, mine)
        found = self._judged_closely(name, mine, self._expected(name, own, exact, moved, place), place)
        return Comparison(what, found.ok, found.error, found.allowed, found.message, found.ulps, found.reference_ulps)

    def _judged_closely(self, name: str, mine: torch.Tensor, expected: budget.Expected, place: int) -> budget.Judgement:
        """What takes a while is looked at where it may change the judgement."""
        found = budget.judge(mine, expected)
        if not found.ok:
            self._move_more()
            moved = self.moved[place]
            assert moved is not None
            expected = replace(expected, moved=moved, errors=self._errors[place])
            found = budget.judge(mine, expected)
        if not found.ok and self._half and not _is_result(name) and not self._transforms:
            stored = self._moved_by_storing[place]
            if stored is not None:
                expected = replace(expected, moved=expected.moved + stored)
                found = budget.judge(mine, expected)
        if not found.ok and self._rounding.pointwise and self.dtype is torch.float64 and not self._transforms:
            expected = replace(expected, moved=self._where_single_is_lost(place, expected.moved))
            found = budget.judge(mine, expected)
        if not found.ok and not self._rounding.pointwise and not self._transforms:
            within = self._moved_within[place]
            if within is not None:
                expected = replace(expected, moved=expected.moved + within)
                found = budget.judge(mine, expected)
        if self._half and (self._figures or not found.ok):
            eager = self._eager[place]
            if eager is None or not eager.is_floating_point():
                return found
            torchs = budget.units_of_error(eager, expected.exact, torch.zeros_like(expected.moved), eager.dtype)
            errors = budget.units_of_error(eager, expected.exact, expected.moved, eager.dtype)
            excused = self._rounding.result if _is_result(name) else self._rounding.gradient
            excused = excused or len(self._dtypes) > 1  # what is lifted to which dtype, and when, nobody says
            if excused and mine.dtype == eager.dtype:
                torchs_own = (mine == eager) | (mine.isnan() & eager.isnan())
                if bool(torchs_own.all()):
                    return replace(found, ok=True, message="")  # it is torch itself
                mine = torch.where(torchs_own, expected.own.to(mine.dtype), mine)
            if self._rounding.runs_reference and _is_result(name):
                # torch rounds on the way, in its vector loop and in the rest of the elements differently: to the half
                # type, so that what inputs move a result by is what steps of that type do.
                coarse = max(torch.finfo(dtype).eps for dtype in self._dtypes)
                expected = replace(expected, moved=expected.moved * (coarse / self._step(place)))
            rounds = budget.largest_regular(errors) if excused else 0.0
            return budget.judge(mine, replace(expected, eager=rounds, reference_ulps=budget.largest_regular(torchs)))
        if found.ok or self._half:
            return found
        self._nearby = self._nearby or self._drawn(MORE_DRAWS)
        near = self._nearby[place]
        if near is not None and near.numel() < FEW:
            near = torch.full_like(near, budget.largest_regular(near))
        return budget.judge(mine, replace(expected, nearby=near))

    def _expected(
        self, name: str, own: torch.Tensor, exact: torch.Tensor, moved: torch.Tensor, place: int
    ) -> budget.Expected:
        terms = self._count / max(1, own.numel())
        once = self._rounding.pointwise and _is_result(name)
        return budget.Expected(own, exact, moved, self._errors[place], 0.0, terms, once)

    def _equal(self, what: str, place: int, mine: torch.Tensor) -> Comparison:
        """Numbers that are not rounded are the reference's; or, where it rounds or compares something on the way, what
        it gives beside that."""
        candidates = [self.own[place][1], self.exact[place][1], *(other[place][1] for other in self._beside)]
        if self._half and (self._rounding.result or len(self._dtypes) > 1):  # then torch itself is what runs
            candidates.append(self._eager[place])
        right = _is_one_of(mine, candidates)
        for seed in range(1, TIES):  # of many numbers beside ties, some are left on one side by luck
            if bool(right.all()):
                break
            moved = self._evaluated(self._args, torch.float64, change=strewn(seed, STEP), gradients=False)
            right |= _is_one_of(mine, [moved[place][1]])
        if bool(right.all()):
            return Comparison(what, True, 0.0, 0.0)
        wrong = int((~right).sum())
        first = tuple((~right).nonzero()[0].tolist())
        theirs = self.own[place][1]
        assert theirs is not None
        message = f"values differ: {mine[first].item()} where the reference gives {theirs[first].item()}"
        return Comparison(what, False, float("inf"), 0.0, f"{message}; {wrong} of {mine.numel()} elements")


def _is_one_of(mine: torch.Tensor, candidates: Sequence[torch.Tensor | None]) -> torch.Tensor:
    right = torch.zeros(mine.shape, dtype=torch.bool, device=mine.device)
    for each in candidates:
        if each is not None and each.shape == mine.shape:
            right |= mine == each.to(mine.dtype)
    return right


def _is_result(what: str) -> bool:
    return not what.startswith("gradient")


def _eps(tensor: torch.Tensor, otherwise: float) -> float:
    return torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else otherwise


def _lifted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float32) if tensor.dtype in budget.HALF_TYPES else tensor
