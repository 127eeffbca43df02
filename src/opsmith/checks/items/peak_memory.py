"""Peak memory stays within the declared cost, or what the reference needs, and no memory leaks."""

from __future__ import annotations

import itertools

import torch

from ...operator.op import Op
from .. import memory
from ..accuracy.rounding import reference_runs
from ..calls.allocation import Allocated, measured
from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import patterns_of
from ..outcome import Failed, Skipped
from ..subject import Subject
from ._choice import accelerated, arguments_of, has_gradients

ELEMENTS = {"cpu": (1 << 14, 1 << 16), "cuda": (1 << 20, 1 << 22)}
"""Of the largest tensor of the case that is looked at: what a kernel keeps for each block of a GPU is small beside."""
LARGEST = 1 << 24
"""Of a sample that is used as it is, where there is no smaller one."""
SLACK = 1 << 16
"""Bytes for what does not grow with the tensors: states of random generators, partial sums of a block."""


def check(subject: Subject) -> str:
    case = _large(subject)
    largest = max(tensor.nbytes for tensor in [*case.every_tensor(), *subject.reference(case.values)])
    forward = _measured(subject, case, gradients=False)
    summary = [f"forward {_share(forward[0].peak, largest)} (the reference {_share(forward[1].peak, largest)})"]
    _judge_forward(subject, case, largest, *forward)
    if has_gradients(subject, case):
        both = _measured(subject, case, gradients=True)
        summary.append(f"with backward {_share(both[0].peak, largest)} ({_share(both[1].peak, largest)})")
        _judge_both(subject, case, largest, *both)
    _lets_inputs_go(subject, case)
    return f"in units of its largest tensor, of {largest} bytes: {', '.join(summary)}"


def _lets_inputs_go(subject: Subject, case: Case) -> None:
    """What a call was given is gone when its caller lets it go. (An op may keep the latest: of three calls the first is
    looked at.)"""
    held = memory.held_after(lambda *values: subject.raw(values), *case.values)
    if held:
        names = ", ".join(argument.name for argument in case.arguments)
        line = f"assert not opsmith.checks.memory.held_after(lambda {names}: op({arguments_of(case)}), {names})"
        raise Failed(f"{case.name}: it keeps its inputs: {held} tensors of a call that is long over", case, [line])


def _judge_forward(subject: Subject, case: Case, largest: int, mine: Allocated, theirs: Allocated) -> None:
    """What is allocated is written to, so that a call which moves no more bytes than its cost holds no more either. The
    cost is the least: where the reference runs, it is the reference's."""
    like_reference = theirs.peak + largest
    if subject.cost is None or not accelerated(subject) or reference_runs(subject.op, case.values):
        return _judge(subject, case, mine, like_reference, "forward", "its reference and a tensor more")
    positional, keyword = subject.arranged(case.values)
    declared = subject.cost(*positional, **keyword).bytes
    copies = sum(tensor.nbytes for argument, tensor in case.tensors() if argument.mutated)
    _judge(subject, case, mine, declared + copies, "forward", f"the {declared} bytes of its declared cost")


def _judge_both(subject: Subject, case: Case, largest: int, mine: Allocated, theirs: Allocated) -> None:
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
    _judge(subject, case, mine, most, "forward and backward", budget)


def _runs_forward_again(subject: Subject) -> bool:
    """Whether its gradient is the reference's, whose results are there a second time while it is found."""
    if not isinstance(subject.op, Op):
        return False
    forward = subject.op._families.in_use().differentiable
    has_kernel = forward.backward is not None and subject.device in forward.backward.kernels
    return not has_kernel and forward.written_gradient is None


def _judge(subject: Subject, case: Case, found: Allocated, most: int, what: str, budget: str) -> None:
    gradients = what != "forward"
    options = f"gradients={gradients}, device={subject.device!r}"
    line = f"found = opsmith.checks.calls.allocation.of_call(op, {arguments_of(case)}, {options})"
    if found.left > SLACK:
        message = f"{case.name}: {what} leaves {found.left} bytes behind, when all that it returned is gone"
        raise Failed(message, case, [line, f"assert found.left <= {SLACK}, found"])
    if found.peak > most + SLACK:
        message = f"{case.name}: {what} holds {found.peak} bytes at once, where {budget} make {most}"
        raise Failed(message, case, [line, f"assert found.peak <= {most + SLACK}, found"])


def _measured(subject: Subject, case: Case, gradients: bool) -> tuple[Allocated, Allocated]:
    """Of the op, and of its reference."""
    mine = measured(subject, subject.raw, case.values, gradients)
    return mine, measured(subject, subject.inline, case.values, gradients)


def _large(subject: Subject) -> Case:
    least, most = ELEMENTS[subject.device]
    cases = [case for case in subject.cases(torch.float32, LARGEST) if _is_fit(case, least)]
    if cases:
        return min(cases, key=lambda case: case.numel)
    # A result may have all of the dimensions in it, and then be as large as the largest sample may be; or it may not.
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


def _is_fit(case: Case, least: int) -> bool:
    return case.numel >= least and all(tensor.is_contiguous() for tensor in case.every_tensor())


def _share(count: int, largest: int) -> str:
    return f"{count / largest:.2f}"
