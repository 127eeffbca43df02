"""Which cases the items use, and how a call is written in a reproduction."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch

from ...errors import OpsmithError
from ...operator.op import Op
from ...reference import purity
from ...reference.signature import Argument
from ..accuracy.evaluate import evaluate
from ..calls.fake import on_fake
from ..cases import patterns
from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import patterns_of
from ..outcome import Skipped, Uncovered
from ..subject import SMALL, TOO_LARGE, Subject, short

FEW, MANY = 2, 8
LITTLE = 128
"""Elements of a call that anything can be done with, second derivatives of each by each included."""
MOST = 8
"""The size of a dimension in calls that are made up."""


def draws_random_numbers(subject: Subject, case: Case) -> bool:
    return purity.draws_random_numbers(lambda: subject.reference(case.values), case.every_tensor())


def has_gradients(subject: Subject, case: Case) -> bool:
    """Whether a gradient can be asked for. An op whose reference draws random numbers may refuse."""
    known = _known.setdefault(subject, {})
    if id(case) not in known:
        known[id(case)] = case, _has_gradients(subject, case)
    return known[id(case)][1]


# What was found out for a case, which is kept so that its id stays its own.
_known: WeakKeyDictionary[Subject, dict[int, tuple[Case, bool]]] = WeakKeyDictionary()


def _has_gradients(subject: Subject, case: Case) -> bool:
    if not subject.differentiates(case):
        return False
    if not draws_random_numbers(subject, case):
        return True
    try:
        evaluate(subject.arguments, subject.raw, case.values)
    except OpsmithError:
        return False
    return True


def deterministic(subject: Subject, case: Case) -> None:
    """Raises Skipped where two calls may differ."""
    if draws_random_numbers(subject, case):
        raise Skipped("its reference draws random numbers, and no two calls are alike")


def accelerated(subject: Subject) -> bool:
    """Whether anything but the reference may run: a kernel here, or an operator that others have written."""
    return bool(subject.kernels) or subject.keeps_layout or not hasattr(subject.op, "default")


def various_cases(subject: Subject, limit: int = SMALL) -> list[Case]:
    """In each dtype some cases; in float32 more, for what a kernel does at an end depends on the size. Where no kernel
    runs, one a dtype."""
    found: list[Case] = []
    for dtype in subject.dtypes:
        count = 1 if not accelerated(subject) else MANY if dtype is torch.float32 else FEW
        found += subject.some_cases(dtype, limit, max(count, 2))[:count]
    if not found:
        raise Uncovered(f"{TOO_LARGE} to {limit} elements")
    return found


def small_case(subject: Subject, dtypes: Sequence[torch.dtype] = (torch.float32,), least: int = 2) -> Case:
    """The smallest case with `least` elements in its largest tensor, none empty, and every number finite. One with
    fewer elements where there is no other."""
    for dtype, limit in itertools.product(dtypes, (LITTLE, SMALL)):
        plain = [case for case in subject.cases(dtype, limit) if _is_plain(case)]
        if found := [case for case in plain if case.numel >= least] or plain:
            return min(found, key=lambda case: sum(tensor.numel() for tensor in case.every_tensor()))
    text = " or ".join(short(dtype) for dtype in dtypes)
    raise Uncovered(f"no sample in {text} with finite numbers and no empty tensor can be cut down to {SMALL} elements")


def resized(subject: Subject, count: int, dtype: torch.dtype = torch.float32) -> list[Case]:
    """Small calls that differ in one size, that of the first dimension where it can be: none is 0 or 1, so that one
    graph with a symbol for it fits all. Fewer than `count` where the op takes no others."""
    found: list[Case] = []
    for pattern in patterns_of(subject, dtype):
        sizes = pattern.sizes_of(pattern.base)
        small = [own if group in pattern.frozen else min(own, MOST) for group, own in enumerate(sizes)]
        free = [group for group, own in enumerate(sizes) if own > 1 and group not in pattern.frozen]
        for group in sorted(free, key=lambda group: pattern.groups[group].is_constant):
            cases = []
            for size in range(3, 3 + 2 * count, 2):
                chosen = [size if each == group else own for each, own in enumerate(small)]
                cases.append(pattern.case(chosen, seed=subject.seed, name=f"a call of size {size}, {short(dtype)}"))
            cases = [case for case in cases if taken(subject, case)]
            found = cases if len(cases) > len(found) else found
            if len(found) == count:
                return found
    return found


def made_up(subject: Subject) -> Case:
    """One of those where there is any, else the smallest sample."""
    return next(iter(resized(subject, 1)), None) or small_case(subject)


def traceable(subject: Subject) -> None:
    """Raises Skipped where no tracer can get through, by the nature of the op: the shape rule is derived from a
    reference with an operator such as bincount, or whose results are of sizes that depend on numbers. A branch on
    numbers is another matter: that reference can be written without, and the op fails."""
    if looks_at_numbers(subject) and (not _asks_for_a_number(subject) or _sizes_depend_on_numbers(subject)):
        raise Skipped(LOOKS_AT_NUMBERS)


def looks_at_numbers(subject: Subject) -> Exception | None:
    """What the reference raises on fake tensors, which have no numbers, where the shape rule is derived from it."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    if isinstance(subject.op, Op) and subject.op.default.forward.written_fake is not None:
        return None
    try:
        on_fake(subject.arguments, subject.inline, made_up(subject).values, gradients=False)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        return error
    return None


def _asks_for_a_number(subject: Subject) -> bool:
    """By .item(), int() or a branch, in Python."""
    error = looks_at_numbers(subject)
    return error is not None and "_local_scalar_dense" in str(error)


def _sizes_depend_on_numbers(subject: Subject) -> bool:
    case = made_up(subject)
    shapes = [result.shape for result in subject.reference(case.values)]
    changes = (
        ("{} // 2", lambda t: t // 2 if patterns.is_integer(t.dtype) else t),
        ("{} * 0", lambda t: t * 0),
        ("-{}", lambda t: -t if t.is_floating_point() else t),
    )
    for code, change in changes:
        other = case.each_tensor(change, code)
        if taken(subject, other) and [result.shape for result in subject.reference(other.values)] != shapes:
            return True
    return False


LOOKS_AT_NUMBERS = (
    "its reference looks at the numbers in its inputs, which fake tensors do not have; register_fake makes it traceable"
)


def named_tensors(case: Case) -> list[tuple[str, Argument, torch.Tensor]]:
    """Every tensor with the expression that names it, and its argument."""
    found = []
    for argument, value in zip(case.arguments, case.values, strict=True):
        if isinstance(value, torch.Tensor):
            found.append((argument.name, argument, value))
        elif argument.is_tensor and value is not None:
            parts = ((f"{argument.name}[{index}]", argument, each) for index, each in enumerate(value))
            found += [part for part in parts if part[2] is not None]
    return found


def arguments_of(case: Case) -> str:
    """'x, bias, scale=scale'"""
    return ", ".join(f"{each.name}={each.name}" if each.keyword_only else each.name for each in case.arguments)


def outputs_of(case: Case, gradients: bool) -> str:
    return f"opsmith.checks.outputs(op, {arguments_of(case)}{'' if gradients else ', gradients=False'})"


def _is_plain(case: Case) -> bool:
    return case.has_elements and case.is_finite


def backward_lines(case: Case) -> list[str]:
    """Lines that bind the results which require a gradient, and the gradients to pass to them."""
    return [
        f"results = [each for each in opsmith.checks.subject.listed({case.call()}) if each.requires_grad]",
        "weights = [opsmith.checks.accuracy.evaluate.weights_of(each) for each in results]",
    ]
