"""Calls with more than 2^31 elements are right everywhere: no index and no size overflows 32 bits."""

from __future__ import annotations

import random

import torch

from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Rounding, Truth
from ..calls.allocation import measured
from ..cases.case import Case
from ..cases.patterns import lengthened
from ..outcome import Failed, Skipped
from ..subject import Subject, listed
from ._choice import accelerated, arguments_of
from ._memory import free_bytes, gibibytes, growth
from ._parts import Plan, plan
from ._truth import raising

LEVEL = "full"
ORDER = 90
ELEMENTS = 2**31 + 2**20
PERIOD = 2**20 - 3
"""Parts after which the numbers come again: a prime, so that no two places 2^k apart hold the same."""
WINDOW, WINDOWS = 4096, 24
MEASURED, WATCHED = 2**18, 2**23
"""Elements of the calls by which it is known how much memory a huge one takes: of torch, and of the system."""
ROOM = 1.1
"""Times what that makes."""


def check(subject: Subject) -> str:
    if not accelerated(subject):
        raise Skipped("no kernel of its own runs here, only torch's")
    found = plan(subject, min(subject.dtypes, key=lambda dtype: dtype.itemsize))
    if found is None:
        raise Skipped("along no dimension of its samples does a call fall apart into calls that could be compared")
    return look(subject, found, ELEMENTS)


def look(subject: Subject, found: Plan, elements: int) -> str:
    parts = found.parts_for(elements)
    block = found.case(min(PERIOD, parts))
    gradients = subject.differentiates(found.case(2)) and not subject.inplace
    needed, more = _needed(subject, found, parts, gradients)
    free = free_bytes(subject.device)
    text = f"{parts} parts of {found.largest} elements" if found.largest > 1 else f"{parts} elements"
    if needed * ROOM > free:
        raise Skipped(f"{text} take {gibibytes(needed * ROOM)} GiB, {gibibytes(free)} are free")
    if gradients and more * ROOM > free:
        gradients, text = False, f"{text}; gradients would take {gibibytes(more * ROOM)} GiB, no more free"
    try:
        _run(subject, found, block, parts, gradients)
    except torch.OutOfMemoryError as error:
        raise Skipped(f"{text} do not fit: {str(error).splitlines()[0]}") from None
    return text


def _needed(subject: Subject, found: Plan, parts: int, gradients: bool) -> tuple[float, float]:
    """Bytes, without gradients and with them."""
    taken = found.elements[0] * found.dtype.itemsize
    forward = _taken(subject, found, parts, gradients=False)
    both = _taken(subject, found, parts, gradients=True) if gradients else forward
    return parts * (taken + forward), parts * (taken + both)


def _taken(subject: Subject, found: Plan, parts: int, gradients: bool) -> float:
    """Bytes a part beside the inputs: what a smaller call allocates of torch or, on a CPU, otherwise. Kernels that take
    no strides copy a gradient of ones that all lie in one place."""
    small, larger = (max(1, min(elements // found.largest, parts)) for elements in (MEASURED, WATCHED))
    least = measured(subject, subject.raw, found.case(small).values, gradients).peak / small
    least += found.elements[1] * found.dtype.itemsize * gradients
    if subject.device != "cpu":
        return least
    case = found.case(larger)
    return max(least, growth(lambda: _outputs(subject, found, case, found.tensors(case.values), gradients)) / larger)


def _outputs(
    subject: Subject, found: Plan, case: Case, tensors: list[torch.Tensor], gradients: bool
) -> list[tuple[str, torch.Tensor | None, int]]:
    """Results, and gradients of what the call falls apart along, with that axis of each."""
    named = list(zip(tensors, _names(found, case), strict=True))
    asked = [(t, name, axis) for t, (name, axis) in named if axis is not None and t.is_floating_point()]
    for tensor, _, _ in asked if gradients else ():
        tensor.requires_grad_()
    results = listed(subject.raw(found.filled(case.values, tensors)))
    names = ["result"] if len(results) == 1 else [f"result {index}" for index in range(len(results))]
    outputs: list[tuple[str, torch.Tensor | None, int]] = list(zip(names, results, found.result_axes, strict=True))
    if gradients:
        targets = [result for result in results if result.requires_grad]
        ones = [result.new_ones(()).expand_as(result) for result in targets]
        grads = torch.autograd.grad(targets, [t for t, _, _ in asked], ones, allow_unused=True)
        outputs += [(f"gradient of {name}", grad, axis) for grad, (_, name, axis) in zip(grads, asked, strict=True)]
    return outputs


def _run(subject: Subject, found: Plan, block: Case, parts: int, gradients: bool) -> None:
    pairs = zip(found.tensors(block.values), found.axes, strict=True)
    with raising(block, _lines(found, block, parts, 0, gradients)):
        tensors = [t if axis is None else lengthened(t, axis, parts) for t, axis in pairs]
        outputs = _outputs(subject, found, block, tensors, gradients)
    rounding = rounding_of(subject.op, found.cut(block.values, 0, min(WINDOW, PERIOD, parts)), gradients)
    for start in _starts(parts, subject.seed):
        _compare(subject, found, block, parts, start, outputs, gradients, rounding)


def _compare(
    subject: Subject,
    found: Plan,
    block: Case,
    parts: int,
    start: int,
    outputs: list[tuple[str, torch.Tensor | None, int]],
    gradients: bool,
    rounding: Rounding,
) -> None:
    """One window. The numbers come from the block: an op that works in place has changed its own."""
    length = min(WINDOW, parts)
    values = found.filled(
        block.values,
        [
            t if axis is None else _around(t, axis, start, length)
            for t, axis in zip(found.tensors(block.values), found.axes, strict=True)
        ],
    )
    only = [p for p, axis in enumerate(found.axes) if axis is not None]
    truth = Truth(subject.arguments, subject.inline, values, gradients, rounding, only=only, lay=torch.ones_like)
    given = [(what, None if t is None else t.detach().narrow(axis, start, length)) for what, t, axis in outputs]
    for each in truth.beside(given):
        if not each:
            message = f"{found.describe(parts)}, from {start} on: {each.what}: {each.message}"
            raise Failed(message, block, _lines(found, block, parts, start, gradients))


def _around(tensor: torch.Tensor, axis: int, start: int, length: int) -> torch.Tensor:
    """What `lengthened` has there."""
    places = torch.arange(start, start + length, device=tensor.device) % tensor.shape[axis]
    return tensor.index_select(axis, places)


def _starts(parts: int, seed: int) -> list[int]:
    """Windows at both ends, around the powers of two where 32 bits end, and some others."""
    last = max(0, parts - WINDOW)
    ends = [2**power // divisor for power in (31, 32) for divisor in (1, 2, 4)]
    drawn = [random.Random(seed).randint(0, last) for _ in range(WINDOWS)]
    return sorted({min(last, max(0, place)) for place in (0, last, *(end - WINDOW // 2 for end in ends), *drawn)})


def _names(found: Plan, case: Case) -> list[tuple[str, int | None]]:
    """The expression that names each tensor, and its axis."""
    named = []
    for slot, axis in zip(found.pattern.slots, found.axes, strict=True):
        name = case.arguments[slot.argument].name
        named.append((name if slot.element is None else f"{name}[{slot.element}]", axis))
    return named


def _lines(found: Plan, block: Case, parts: int, start: int, gradients: bool) -> list[str]:
    """The whole call, then the reference on one window of it."""
    cut = [(name, axis) for name, axis in _names(found, block) if axis is not None]
    names, axes = ", ".join(name for name, _ in cut), [axis for _, axis in cut]
    window = f"{start}, {min(WINDOW, parts)}"
    call = arguments_of(block)
    lines = [
        *(f"{name} = opsmith.checks.cases.patterns.lengthened({name}, {axis}, {parts})" for name, axis in cut),
        "listed = lambda results: list(results) if isinstance(results, (tuple, list)) else [results]",
        f"whole = {names},",
        f"part = [each.narrow(axis, {window}).clone() for each, axis in zip(whole, {axes})]",
    ]
    if gradients:
        lines += ["[each.requires_grad_() for each in (*whole, *part) if each.is_floating_point()]"]
    lines += [f"mine = listed(op({call}))", f"{names}, = part", f"theirs = listed(reference({call}))"]
    if gradients:
        axes = [*found.result_axes, *axes]
        lines += [_GRADIENTS.format("mine", "whole"), _GRADIENTS.format("theirs", "part")]
    else:
        axes = [*found.result_axes]
    lines += [f"for large, small, axis in zip(mine, theirs, {axes}):"]
    return [*lines, f"    torch.testing.assert_close(large.detach().narrow(axis, {window}), small.detach())"]


_GRADIENTS = (
    "{0} += torch.autograd.grad({0}, [each for each in {1} if each.requires_grad], "
    "[each.new_ones(()).expand_as(each) for each in {0}])"
)
