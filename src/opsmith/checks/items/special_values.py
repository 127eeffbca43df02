"""inf, NaN, denormals, zeros, the ends of a dtype's range, kinks and large integers match the reference.

The sign of a result that is zero is not checked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ...reference.signature import Argument
from ..accuracy.evaluate import Named, in_pairs
from ..accuracy.rounding import is_elementwise
from ..accuracy.truth import Truth
from ..cases.acceptance import largest_result, taken
from ..cases.case import Case
from ..cases.patterns import Pattern, Slot, is_integer, patterns_of
from ..outcome import Failed, Skipped
from ..subject import Subject, short
from ._cases import skip_random
from ._compare import match_lines, op_outputs, reference_truth, require

ON = ("cpu", "cuda", "emulated")
CORE = (float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 1.0, -1.5)
"""Every combination of these is tried, if there are at most MOST."""
MOST = 4096
PLAIN = 0.75
"""The value of the other tensors while one goes through all numbers."""
JUMP = 2.0**-8
"""Of the largest gradient: only at a kink does one last place of the inputs move it by as much."""
KINDS = (("nan", float("nan")), ("inf", float("inf")), ("minus inf", float("-inf")), ("minus zero", -0.0))
LARGE = (100.0, -100.0)
"""One has an infinite exponential in float32. Added to them is a number whose square is infinite in float16, or that is
large compared with the others in any dtype."""
WHOLE = (-1, 2**24 + 1, 2**31 + 1, 2**53 + 1)
"""Among integers: an index that counts from the end, and what float32, int32 and float64 cannot represent."""

REACH, STEP = 32.0, 1 / 32
"""The grid on which kinks are searched."""
STEEP = 64.0
"""A step of the gradient this many times its neighbours is a jump: the steps of a smooth one are of similar size."""
HALVINGS = 60
MOST_KINKS = 16


def check(subject: Subject) -> str:
    calls = 0
    for case in _with_integers(subject):
        _check_values(subject, case, planted=True, floating=False)
        calls += 1
    for dtype in subject.dtypes:
        rows = _by_elements(subject, dtype)
        for each in rows:
            _check_rows(subject, each)
        planted = [] if rows else _with_planted_number(subject, dtype)
        for case in planted:
            _check_values(subject, case, planted=True)
        calls += len(rows) + len(planted)
    if not calls:
        raise Skipped("no sample has a tensor with elements, of real numbers, that is an argument of its own")
    return f"{calls} calls"


def numbers(dtype: torch.dtype) -> list[float]:
    info = torch.finfo(dtype)
    denormal = info.smallest_normal * info.eps
    ends = [info.max, info.max / 2, info.smallest_normal, denormal, 3 * denormal, info.eps]
    usual = [0.5, 2.0, 3.0, 6.0, 10.0, 20.0, 40.0, 80.0, 88.0, 89.0, 100.0, 700.0, 710.0, 1e4]
    if dtype is torch.float64:  # where exp overflows, the truth itself is lost: there is no wider type
        usual = [number for number in usual if not 300 < number < 1000]
    signed = [sign * number for number in (*ends, *usual) for sign in (1, -1) if abs(number) <= info.max]
    return [*CORE, *signed]


# --- Pointwise ops: a row of arguments is a call ------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Each row has the numbers for one element of the result: one for each floating argument."""

    pattern: Pattern
    dtype: torch.dtype
    name: str
    rows: Sequence[tuple[float, ...]]

    def case(self) -> Case:
        """Other tensors are filled as in the samples."""
        shapes = [(len(self.rows),)] * len(self.pattern.slots)
        floating = _floating(self.pattern)
        name = f"{self.name}, {short(self.dtype)}"
        if len(self.rows) == 1:
            names = [self.pattern.base.arguments[slot.argument].name for slot in floating]
            name += f", {', '.join(f'{each} = {number}' for each, number in zip(names, self.rows[0], strict=True))}"
        case = self.pattern.case((), shapes=shapes, name=name)
        device = self.pattern.device
        for slot, column in zip(floating, zip(*self.rows, strict=True), strict=True):
            tensor = torch.tensor(column, dtype=torch.float64).to(device, self.dtype)
            code = (
                f"torch.tensor([{', '.join(map(_literal, column))}], dtype=torch.float64).to({device!r}, {self.dtype})"
            )
            case = case.changed(case.arguments[slot.argument].name, tensor, code)
        return case


def _floating(pattern: Pattern) -> list[Slot]:
    return [slot for slot in pattern.slots if slot.dtype.is_floating_point]


def _by_elements(subject: Subject, dtype: torch.dtype) -> list[Rows]:
    """Empty if the op is not elementwise."""
    patterns = patterns_of(subject, dtype)
    if not patterns:
        return []
    pattern = patterns[0]
    skip_random(subject, pattern.base)
    count = len(_floating(pattern))
    in_lists = any(slot.element is not None for slot in pattern.slots)
    if not count or in_lists or not is_elementwise(subject.op, pattern.base.values):
        return []
    rows = list(itertools.product(CORE, repeat=count)) if len(CORE) ** count <= MOST else []
    for place in range(count):
        rows += [_row(count, place, each, PLAIN) for each in numbers(dtype)]
    found = [Rows(pattern, dtype, "special values", rows)]
    if dtype in (torch.float32, torch.float64):
        found.append(Rows(pattern, dtype, "kinks", _kinks(subject, pattern, count, dtype)))
    return [each for each in found if taken(subject, each.case())]


def _row(count: int, place: int, number: float, others: float) -> tuple[float, ...]:
    return tuple(number if index == place else others for index in range(count))


def _kinks(subject: Subject, pattern: Pattern, count: int, dtype: torch.dtype) -> list[tuple[float, ...]]:
    """Halves and whole numbers, where most functions have their kinks, and where the reference's gradient jumps."""
    usual = [step / 2 for step in range(-16, 17)]
    rows: list[tuple[float, ...]] = []
    for place in range(count):
        for others in (PLAIN, 1.0, -1.0) if count > 1 else (PLAIN,):
            single = Rows(pattern, torch.float64, "", [_row(count, place, PLAIN, others)]).case()
            found = _jumps(subject, single, place, dtype) if subject.differentiates(single) else []
            rows += [_row(count, place, each, others) for each in (*usual, *found)]
    return list(dict.fromkeys(rows))


def _check_rows(subject: Subject, rows: Rows) -> None:
    """Raises Failed for the fewest rows that still fail."""
    try:
        _check_values(subject, rows.case())
    except Failed:
        half = len(rows.rows) // 2
        for part in (rows.rows[:half], rows.rows[half:]):
            if 0 < len(part) < len(rows.rows):
                _check_rows(subject, replace(rows, rows=part))
        raise


def _literal(number: float) -> str:
    return repr(number) if math.isfinite(number) else f'float("{number}")'


def _jumps(subject: Subject, row: Case, place: int, dtype: torch.dtype) -> list[float]:
    """Numbers of a dtype at or beside which the gradient of the row's floating tensor at `place` jumps: found on a
    grid, then by bisection. The other tensors are as in the row."""
    argument = row.floating()[place][0].name

    def gradient(points: torch.Tensor) -> torch.Tensor:
        case = row
        for other, tensor in row.tensors():
            if other.name != argument:
                case = case.changed(other.name, tensor.expand(points.shape).contiguous(), "")
        leaf = points.clone().requires_grad_()
        results = subject.reference(case.changed(argument, leaf, "").values)
        targets = [in_pairs(result).sum() for result in results if result.requires_grad]
        return torch.autograd.grad(targets, leaf, materialize_grads=True)[0] if targets else torch.zeros_like(points)

    # A third of a step off, since at a kink itself the gradient may be that of either side.
    grid = torch.arange(-REACH, REACH, STEP, dtype=torch.float64, device=row.every_tensor()[0].device) + STEP / 3
    steps = gradient(grid).diff().abs()
    near = torch.maximum(torch.roll(steps, 1), torch.roll(steps, -1))
    jumps = (steps > STEEP * near) & (steps > 1e-9)
    low, high = grid[:-1][jumps][:MOST_KINKS], grid[1:][jumps][:MOST_KINKS]
    if not low.numel():
        return []
    left, right = gradient(low), gradient(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slope = gradient(middle)
        to_the_left = (slope - left).abs() < (slope - right).abs()
        low, high = torch.where(to_the_left, middle, low), torch.where(to_the_left, high, middle)
    found = high.to(dtype)
    around = [found, torch.nextafter(found, found - 1), torch.nextafter(found, found + 1)]
    return [float(each) for tensor in around for each in tensor]


# --- Other ops: one number in the middle of a tensor --------------------------------------------------------------


def _with_planted_number(subject: Subject, dtype: torch.dtype) -> list[Case]:
    found = []
    for pattern in patterns_of(subject, dtype)[: None if subject.full else 1]:
        base = pattern.base
        skip_random(subject, base)
        for argument, tensor in base.floating():
            if not tensor.numel():
                continue
            large = (*LARGE, 300.0 if dtype is torch.float16 else 1e4)
            for kind, number in (*KINDS, *((str(each), each) for each in large)):
                found.append(_with_one(base, argument, tensor, number, kind))
    return [case for case in found if taken(subject, case)]


def _with_integers(subject: Subject) -> list[Case]:
    """Integers that determine the sizes of the results stay small."""
    found = []
    patterns = [pattern for dtype in subject.dtypes[:1] for pattern in patterns_of(subject, dtype)]
    for pattern in patterns[: None if subject.full else 1]:
        base = pattern.base
        skip_random(subject, base)
        large = largest_result(subject, base) is not None  # from shapes alone
        for slot in pattern.slots:
            argument, tensor = base.arguments[slot.argument], base.values[slot.argument]
            if not is_integer(slot.dtype) or slot.structured or slot.element is not None or not tensor.numel():
                continue
            limits = torch.iinfo(slot.dtype)
            numbers = [each for each in WHOLE if limits.min <= each <= limits.max and (large or each < 0)]
            found += [_with_one(base, argument, tensor, number, str(number)) for number in numbers]
    return [case for case in found if taken(subject, case)]


def _with_one(base: Case, argument: Argument, tensor: torch.Tensor, number: float, kind: str) -> Case:
    """The call with a number in the middle of a tensor."""
    middle, name = tensor.numel() // 2, argument.name
    changed = tensor.clone(memory_format=torch.contiguous_format)
    changed.view(-1)[middle] = number
    code = (
        f"{name} = {name}.clone(memory_format=torch.contiguous_format)\n{name}.view(-1)[{middle}] = {_literal(number)}"
    )
    return base.changed(name, changed, code, f"{base.name}, {kind} in {name}")


# --- Comparison -------------------------------------------------------------------------------------------------------


def _check_values(subject: Subject, case: Case, planted: bool = False, floating: bool = True) -> None:
    # Whether a gradient is 0 * inf depends on which zeros are summed, unless it is of a single element.
    gradients = subject.differentiates(case) and "inf in" not in case.name
    truth = reference_truth(subject, case, gradients)
    lines = match_lines(case, gradients)
    found = op_outputs(subject, case, gradients, lines=lines)
    if planted:
        if case.is_finite and not truth.is_finite:
            return  # what is inf or NaN in one order of summation may not be in another
        found = [(what, _infinite_alike(mine, own)) for (what, mine), (_, own) in zip(found, truth.own, strict=True)]
        floats = [(what, mine) for what, mine in found if mine is None or mine.is_floating_point()]
        # Of several that have become NaN, or 0, any may be picked; the picked values are compared.
        found = floats if floating and floats else found
    require(case, truth.beside(found), lines)
    if case.name.startswith("kinks"):
        _check_jumps(case, truth, found)


def _infinite_alike(mine: torch.Tensor | None, own: torch.Tensor | None) -> torch.Tensor | None:
    """Treats inf as NaN where the reference has either, since inf - inf may or may not occur on the way."""
    if mine is None or own is None or mine.shape != own.shape or not mine.is_floating_point():
        return mine
    return torch.where(~mine.isfinite() & ~own.isfinite(), own.to(mine.dtype), mine)


def _check_jumps(case: Case, truth: Truth, found: Sequence[Named]) -> None:
    """Where a rounding of the input moves the gradient by much, a comparison allows much. Here inputs are exact, and
    gradients must be those that the reference picks."""
    rows = zip(found, truth.own, truth.exact, truth.moved, strict=True)
    for (what, mine), (_, own), (_, exact), moved in rows:
        if not what.startswith("gradient") or mine is None or own is None or exact is None or moved is None:
            continue
        jumps = (moved > JUMP * exact.abs().max()) & ((own - exact).abs() < moved / 8)
        wrong = jumps & ~((mine - own).abs() < moved / 8)
        if bool(wrong.any()):
            place = int(wrong.nonzero()[0])
            inputs = ", ".join(f"{a.name} = {float(t[place]):.9g}" for a, t in case.floating())
            at_kink = f"{what} is {float(mine[place]):.9g} at a kink, {inputs}"
            leaves = case.requiring()
            grads = "torch.autograd.grad([each.sum() for each in {}({}) if each.requires_grad], {})"
            listed = "opsmith.checks.subject.listed"
            lines = [
                f"mine = {grads.format(listed, leaves.call(), leaves.leaf_tuple())}",
                f"theirs = {grads.format(listed, leaves.call('reference'), leaves.leaf_tuple())}",
                "torch.testing.assert_close(mine, theirs)",
            ]
            raise leaves.failed(f"{at_kink}: the reference picks {float(own[place]):.9g}", lines)
