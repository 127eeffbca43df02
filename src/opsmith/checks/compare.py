"""An op against its reference on one call: results and gradients, within what rounding explains (see budget.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..samples import Sample
from ..schema import Argument
from . import budget
from .evaluate import Named, declared_dtype, evaluate

if TYPE_CHECKING:
    from ..op import Op

FEW = 16
"""Numbers of which one error tells little, for it may be small by luck: there it is measured several times."""
DRAWS = 4
MOVES = 3

Function = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Comparison:
    """One tensor of the op beside the reference's. Errors are in the units of budget.py, `ulps` in the last place."""

    what: str
    ok: bool
    error: float
    allowed: float
    message: str = ""
    ulps: float = 0.0

    def __bool__(self) -> bool:
        return self.ok


def compare_samples(
    op: Op, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, *, gradients: bool = True
) -> list[Comparison]:
    """Every comparison on every sample of the op."""
    return [each for sample in op.samples_for(device, dtype) for each in compare(op, sample, gradients=gradients)]


def compare(op: Op, sample: Sample, *, gradients: bool = True) -> list[Comparison]:
    """The op's results on a sample, and the gradients of its floating inputs, beside the reference's."""
    args = op.signature.bind(sample.args, dict(sample.kwargs))

    def called(values: Sequence[Any]) -> Any:
        positional, keyword = op.default.forward.arranged(values)
        return op(*positional, **keyword)

    prefix = f"{sample.name}: " if sample.name else ""
    elementwise = op.default.forward.reference.keeps_layout
    return compare_calls(op.signature.arguments, called, op.inline_like_call, args, gradients, prefix, elementwise)


def compare_calls(
    arguments: Sequence[Argument],
    called: Function,
    reference: Function,
    args: Sequence[Any],
    gradients: bool = True,
    prefix: str = "",
    elementwise: bool = False,
) -> list[Comparison]:
    """What `called` gives for these arguments beside what `reference` does."""
    truth = Truth(arguments, reference, args, gradients, elementwise)
    return truth.beside(evaluate(arguments, called, args, gradients=gradients), prefix)


class Truth:
    """What a reference gives for some arguments, exactly and in the op's own dtype, and how sure that is."""

    def __init__(
        self,
        arguments: Sequence[Argument],
        reference: Function,
        args: Sequence[Any],
        gradients: bool = True,
        elementwise: bool = False,
    ) -> None:
        self._arguments, self._reference, self._args, self._gradients = arguments, reference, args, gradients
        self._elementwise = elementwise
        self.dtype = declared_dtype(args)
        working = torch.float32 if self.dtype in budget.HALF_TYPES else None  # the oracle of half types rounds once
        self.own = self._evaluated(args, working)
        self.exact = self._evaluated(args, torch.float64)
        self.moved = self._moved(args, self.exact)
        self.own_units = self._measured()
        self.eager_units = self._eager_units()

    def beside(self, given: Sequence[Named], prefix: str = "") -> list[Comparison]:
        """A Comparison for each tensor that was given."""
        rows = zip(given, self.own, self.exact, self.moved, self.own_units, self.eager_units, strict=True)
        return [
            _judged(prefix + what, mine, own, exact, moved, own_units, eager_units)
            for (what, mine), (_, own), (_, exact), moved, own_units, eager_units in rows
        ]

    def _evaluated(
        self, args: Sequence[Any], dtype: torch.dtype | None, draw: int = 0, change: Any = None
    ) -> list[Named]:
        return evaluate(
            self._arguments, self._reference, args, dtype=dtype, gradients=self._gradients, draw=draw, change=change
        )

    def _moved(self, args: Sequence[Any], exact: Sequence[Named]) -> list[torch.Tensor | None]:
        """How far each element goes when every input, and every gradient of a result, goes one step of its dtype up or
        down. Found in float64 by steps of float32's size, and scaled.

        Results of half types are computed in float32, and move by its steps; but a gradient may be computed from
        results as they are stored, and moves by the half type's."""
        step = torch.finfo(torch.float32).eps
        squares: list[Any] = [None] * len(exact)
        for draw in range(MOVES):
            generator = torch.Generator().manual_seed(draw)

            def change(tensor: torch.Tensor, generator: torch.Generator = generator) -> torch.Tensor:
                signs = torch.randint(0, 2, (tensor.numel(),), generator=generator).reshape(tensor.shape)
                return tensor * (1 + (2.0 * signs.to(tensor) - 1.0) * step)

            for index, (_, tensor) in enumerate(self._evaluated(args, torch.float64, change=change)):
                other = exact[index][1]
                if tensor is None or other is None or not other.is_floating_point():
                    continue
                square = (tensor - other).square()
                squares[index] = square if squares[index] is None else squares[index] + square
        scales = [torch.finfo(self.dtype).eps / step if self._is_wide(what) else 1.0 for what, _ in exact]
        moved = [None if each is None else each.sqrt() * scale for each, scale in zip(squares, scales, strict=True)]
        return moved if self._elementwise else [self._with_largest(*pair) for pair in zip(moved, exact, strict=True)]

    def _with_largest(self, moved: torch.Tensor | None, exact: Named) -> torch.Tensor | None:
        _, tensor = exact
        if moved is None or tensor is None or not tensor.numel():
            return moved
        largest = tensor.abs()[tensor.isfinite()]
        return moved + torch.finfo(self.dtype).eps * (largest.max() if largest.numel() else 0.0)

    def _is_wide(self, what: str) -> bool:
        return self.dtype not in budget.HALF_TYPES or what.startswith("gradient")

    def _measured(self) -> list[float | None]:
        """The reference's error for each tensor in units, where the one beside the truth does not tell it: in float64,
        where no wider type does, it is float32's."""
        unknown: list[float | None] = [None] * len(self.exact)
        if self.dtype in budget.HALF_TYPES:  # rounding to the half type hides what comes before
            return unknown
        narrow = torch.float32
        few = min((tensor.numel() for _, tensor in self.exact if tensor is not None), default=0) < FEW
        draws = DRAWS if few else 1 if self.dtype == torch.float64 else 0
        largest = unknown
        for draw in range(draws):
            change = _nearby(draw)
            inexact = self._evaluated(self._rounded(), narrow, draw, change)
            exact = self._evaluated(
                self._rounded(), torch.float64, draw, lambda t, near=change: near(t.to(narrow)).to(t)
            )
            scale = torch.finfo(narrow).eps / torch.finfo(self.dtype).eps
            for index, ((_, mine), (_, theirs)) in enumerate(zip(inexact, exact, strict=True)):
                moved = self.moved[index]
                if mine is None or theirs is None or moved is None:
                    continue
                units = budget.units_of_error(mine, theirs, moved * scale, narrow)
                largest[index] = max(largest[index] or 0.0, units)
        if self.dtype == torch.float64:
            return largest
        for index, (_, own) in enumerate(self.own):
            theirs, moved, before = self.exact[index][1], self.moved[index], largest[index]
            if own is not None and theirs is not None and moved is not None and before is not None:
                largest[index] = max(before, budget.units_of_error(own, theirs, moved, own.dtype))
        return largest

    def _eager_units(self) -> list[float]:
        """The error of the reference run in a half type, each intermediate rounded."""
        if self.dtype not in budget.HALF_TYPES:
            return [0.0] * len(self.exact)
        try:
            eager = self._evaluated(self._args, None)
        except RuntimeError:  # torch has no such kernel
            return [0.0] * len(self.exact)
        rows = zip(eager, self.exact, self.moved, strict=True)
        return [
            0.0
            if mine is None or exact is None or moved is None or not mine.is_floating_point()
            else budget.units_of_error(mine, exact, moved, mine.dtype)
            for (_, mine), (_, exact), moved in rows
        ]

    def _rounded(self) -> list[Any]:
        """The arguments with floating tensors that float32 holds."""
        return [
            _each(value, lambda t: t.to(torch.float32).to(t.dtype) if t.is_floating_point() else t)
            for value in self._args
        ]


def _nearby(draw: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: tensor * (1 + draw / 64)


def _each(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)) and any(isinstance(each, torch.Tensor) for each in value):
        return [_each(each, change) for each in value]
    return value


def _judged(
    what: str,
    mine: torch.Tensor | None,
    theirs: torch.Tensor | None,
    exact: torch.Tensor | None,
    moved: torch.Tensor | None,
    own_units: float | None,
    eager_units: float,
) -> Comparison:
    if mine is None or theirs is None or exact is None:
        # Torch says None where a gradient is zero by structure; the op may say zero.
        left = 0.0 if mine is None else float(mine.abs().max()) if mine.numel() else 0.0
        right = 0.0 if theirs is None else float(theirs.abs().max()) if theirs.numel() else 0.0
        return Comparison(what, left == right == 0.0, max(left, right), 0.0, "one side has no gradient")
    if mine.shape != theirs.shape:
        message = f"shape {tuple(mine.shape)} beside {tuple(theirs.shape)}"
        return Comparison(what, False, float("inf"), 0.0, message)
    if not mine.is_floating_point() or moved is None:
        same = bool(torch.equal(mine, theirs))
        return Comparison(what, same, 0.0 if same else float("inf"), 0.0, "" if same else "values differ")
    found = budget.judge(mine, theirs, exact, moved, own_units, eager_units)
    return Comparison(what, found.ok, found.error, found.allowed, found.message, found.ulps)
