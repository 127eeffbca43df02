"""Peak memory stays within the declared cost, or what the reference needs, and no memory leaks."""

from __future__ import annotations

import itertools

import torch

from ...operator.op import Op
from ..accuracy.rounding import reference_runs
from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import patterns_of
from ..memory import Allocated, held_after, measured
from ..outcome import Skipped
from ..subject import Subject
from ._cases import accelerated, has_gradients

ELEMENTS = {"cpu": (1 << 14, 1 << 16), "cuda": (1 << 20, 1 << 22)}
"""Of the largest tensor of the case: what a kernel keeps for each block of a GPU is small in comparison."""
LARGEST = 1 << 24
"""Of a sample that is used as it is, if there is no smaller one."""
SLACK = 1 << 16
"""Bytes for what does not grow with the tensors: states of random generators, partial sums of a block."""


def check(subject: Subject) -> str:
    return check_call(subject, _large(subject))


def check_call(subject: Subject, case: Case) -> str:
    largest = max(tensor.nbytes for tensor in [*case.every_tensor(), *subject.reference(case.values)])
    mine, theirs = _measured(subject, case, gradients=False)
    summary = [f"forward {mine.peak / largest:.2f} (the reference {theirs.peak / largest:.2f})"]
    _check_forward(subject, case, largest, mine, theirs)
    if has_gradients(subject, case):
        mine, theirs = _measured(subject, case, gradients=True)
        summary.append(f"with backward {mine.peak / largest:.2f} ({theirs.peak / largest:.2f})")
        _check_both(subject, case, largest, mine, theirs)
    # An op may keep its latest inputs, so the first of three calls is checked.
    if held := held_after(lambda *values: subject.raw(values), *case.values):
        raise case.failed(f"it keeps its inputs: {held} tensors of a call that is long over")
    return f"in units of its largest tensor, of {largest} bytes: {', '.join(summary)}"


def _check_forward(subject: Subject, case: Case, largest: int, mine: Allocated, theirs: Allocated) -> None:
    """What is allocated is written to, so that a call which moves no more bytes than its cost holds no more either. If
    the reference runs, the budget is the reference's."""
    if subject.op.cost is None or not accelerated(subject) or reference_runs(subject.op, case.values):
        return _require(case, mine, theirs.peak + largest, "forward", "its reference and a tensor more")
    positional, keyword = subject.signature.arranged(case.values)
    declared = subject.op.cost(*positional, **keyword).bytes
    copies = sum(tensor.nbytes for argument, tensor in case.tensors() if argument.mutated)
    _require(case, mine, declared + copies, "forward", f"the {declared} bytes of its declared cost")


def _check_both(subject: Subject, case: Case, largest: int, mine: Allocated, theirs: Allocated) -> None:
    """In place and with a gradient, a call works on a copy, keeps one for its backward, and there works on another."""
    spare = largest * max(1, 3 * len(subject.signature.mutated))
    if _runs_forward_again(subject):
        spare += sum(result.nbytes for result in subject.reference(case.values))
    most, budget = theirs.peak + spare, "its reference and what it may copy"
    if subject.keeps_layout and not subject.inplace and not reference_runs(subject.op, case.values):
        results = sum(result.nbytes for result in subject.call(case.values))
        gradients = sum(tensor.nbytes for _, tensor in case.requiring().leaves())
        fused = results + gradients + largest
        most, budget = min((most, budget), (fused, "its results, gradients and a tensor more"))
    _require(case, mine, most, "forward and backward", budget)


def _runs_forward_again(subject: Subject) -> bool:
    """Whether its gradient is derived from the reference, whose results are computed again for it."""
    if not isinstance(subject.op, Op):
        return False
    forward = subject.op._families.in_use().differentiable
    has_kernel = forward.backward is not None and subject.device in forward.backward.kernels
    return not has_kernel and forward.written_gradient is None


def _require(case: Case, found: Allocated, most: int, what: str, budget: str) -> None:
    if found.left > SLACK:
        raise case.failed(f"{what} leaves {found.left} bytes behind after its results are freed")
    if found.peak > most + SLACK:
        raise case.failed(f"{what} holds {found.peak} bytes at once, where {budget} make {most}")


def _measured(subject: Subject, case: Case, gradients: bool) -> tuple[Allocated, Allocated]:
    """The op's, and its reference's."""
    mine = measured(subject, subject.raw, case.values, gradients)
    return mine, measured(subject, subject.inline, case.values, gradients)


def _large(subject: Subject) -> Case:
    least, most = ELEMENTS[subject.device]
    cases = [case for case in subject.cases(torch.float32, LARGEST) if case.numel >= least]
    cases = [case for case in cases if all(tensor.is_contiguous() for tensor in case.every_tensor())]
    if cases:
        return min(cases, key=lambda case: case.numel)
    # A result may contain all of the dimensions, and be as large as the largest sample may be; or it may not.
    for pattern, product in itertools.product(patterns_of(subject), (most, 64 * most)):
        own = pattern.sizes_of(pattern.base)
        free = [group for group in range(len(own)) if group not in pattern.frozen]
        free = [group for group in free if own[group] > 1] or free
        chosen, size = own, product
        while free and size > 1:
            chosen = [size if group in free else old for group, old in enumerate(own)]
            if pattern.numel(chosen) <= product:
                break
            size = size * 3 // 4
        case = pattern.case(chosen, seed=subject.seed, name=f"a call with {size} each way")
        if taken(subject, case) and max(case.numel, *(t.numel() for t in subject.reference(case.values))) >= least:
            return case
    raise Skipped(f"no sample has {least} to {most} elements, and none could be made")
