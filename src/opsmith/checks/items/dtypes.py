"""Every dtype that the reference accepts gives its dtypes and values, also mixed and under any default dtype.

What the reference refuses is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch

from ..cases.case import Case
from ..outcome import Failed, ReferenceRaises, first_line
from ..subject import Subject, short
from ._choice import deterministic, small_case
from ._truth import given, judged, raising, truth_of

FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
OTHERS = (
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip
MIXED = (
    (torch.float32, torch.float64), (torch.float64, torch.float32), (torch.float32, torch.bfloat16),
    (torch.bfloat16, torch.float16), (torch.float16, torch.float32), (torch.int64, torch.float32),
    (torch.float32, torch.int64), (torch.bool, torch.float32), (torch.int32, torch.int64),
)  # fmt: skip
"""For the first floating tensor, and for the others."""


def check(subject: Subject) -> str:
    base = small_case(subject)
    deterministic(subject, base)
    base = replace(base, lines=(*base.lines, base.call()))  # a kernel's first results are looked at closely
    subject.call(base.values)
    taken, refused = 0, []
    for name, case in _cases(subject, base):
        outcome = _look(subject, case)
        taken += outcome == "taken"
        refused += [name] if outcome == "refused" else []
    _look_with_another_default(subject, base)
    summary = f"{taken} dtypes and mixtures as the reference has them"
    return summary + (f"; refused, though the reference takes them: {', '.join(refused)}" if refused else "")


def _cases(subject: Subject, base: Case) -> Iterator[tuple[str, Case]]:
    picks = any(result.dtype is torch.int64 for result in subject.reference(base.values))  # as indexes are
    for dtype in (*FLOATING, *OTHERS):
        cast = _ranked if picks and not (dtype.is_floating_point or dtype.is_complex) else _cast
        case = cast(base, dtype, dtype)
        if case is not None:
            yield short(dtype), case.named(f"{base.name.rpartition(',')[0]}, {short(dtype)}")
    for argument, tensor in base.tensors():
        if tensor.dtype is torch.int64 and not argument.mutated:
            code = f"{argument.name}.to(torch.int32)"
            yield (
                code,
                base.changed(argument.name, tensor.to(torch.int32), code, f"{base.name}, {argument.name} in int32"),
            )
    if len(base.floating()) < 2:
        return
    for first, other in MIXED:
        name = f"{short(first)} with {short(other)}"
        yield name, _cast(base, first, other).named(f"{base.name.rpartition(',')[0]}, {name}")
    if subject.keeps_layout:  # a tensor without dimensions takes no part in promotion within its kind
        name = "float32 with a float64 of no dimension"
        argument, tensor = base.floating()[1]
        if not argument.mutated:
            code = f"{argument.name}.reshape(-1)[0].to(torch.float64)"
            yield name, base.changed(argument.name, tensor.reshape(-1)[0].to(torch.float64), code, name)


def _cast(case: Case, first: torch.dtype, other: torch.dtype) -> Case:
    dtypes = iter([first])
    for argument, tensor in case.floating():
        dtype = next(dtypes, other)
        if tensor.dtype != dtype:
            case = case.changed(argument.name, tensor.to(dtype), f"{argument.name}.to({dtype})")
    return case


def _ranked(case: Case, first: torch.dtype, other: torch.dtype) -> Case | None:
    """With the numbers' ranks, of which no two are equal: which of several equal ones is picked, as the largest or the
    first, nobody says. None where the dtype has fewer numbers."""
    for argument, tensor in case.floating():
        info = None if first is torch.bool else torch.iinfo(first)
        if info is None or tensor.numel() > info.max - info.min:
            return None
        down = 0 if info.min == 0 else tensor.numel() // 2
        name, order = argument.name, tensor.flatten().argsort().argsort().sub(down).reshape(tensor.shape)
        code = f"{name}.flatten().argsort().argsort().sub({down}).reshape({name}.shape).to({first})"
        case = case.changed(name, order.to(first), code)
    return case


def _look_with_another_default(subject: Subject, base: Case) -> None:
    """Where torch.zeros(n) is of float64, say. A reference that goes by that is not followed."""
    line = "torch.set_default_dtype(torch.float64)"
    case = replace(base, lines=(*base.lines, line)).named(f"{base.name}, after {line}")
    before, usual = torch.get_default_dtype(), subject.reference(base.values)
    try:
        torch.set_default_dtype(torch.float64)
        if [each.dtype for each in subject.reference(base.values)] == [each.dtype for each in usual]:
            with raising(case, [case.call()]):
                subject.call(case.values)
            _look(subject, case)
    finally:
        torch.set_default_dtype(before)


def _look(subject: Subject, case: Case) -> str:
    try:
        expected = subject.reference(case.values)
    except Exception as refusal:
        return _refused_too(subject, case, refusal)
    try:
        results = subject.call(case.values)
    except Exception:
        return "refused"
    for index, (mine, theirs) in enumerate(zip(results, expected, strict=True)):
        if mine.dtype != theirs.dtype:
            name = "the result" if len(results) == 1 else f"result {index}"
            lines = [
                "listed = lambda results: results if isinstance(results, (tuple, list)) else [results]",
                f"mine, theirs = listed({case.call()})[{index}], listed({case.call('reference')})[{index}]",
                "assert mine.dtype == theirs.dtype, mine.dtype",
            ]
            message = f"{case.name}: {name} is {short(mine.dtype)}, the reference's {short(theirs.dtype)}"
            raise Failed(message, case, lines)
    _look_at_numbers(subject, case, expected)
    return "taken"


def _look_at_numbers(subject: Subject, case: Case, expected: list[torch.Tensor]) -> None:
    """Integers have no float64 to be compared in. Where the reference turns them into float32 to begin with, that is
    where the truth comes from."""
    if case.floating() or not any(result.dtype is torch.float32 for result in expected):
        gradients = bool(case.floating()) and subject.differentiates(case)
        with contextlib.suppress(ReferenceRaises):
            judged(case, truth_of(subject, case, gradients).beside(given(subject, case, gradients)))
        return
    floats = case.each_tensor(lambda t: t if t.is_complex() else t.to(torch.float32), "{}.to(torch.float32)")
    try:
        same = all(map(torch.equal, subject.reference(floats.values), expected))
    except Exception:
        same = False
    if same:
        line = "torch.testing.assert_close({}, {})".format(case.call(), case.call("reference"))
        judged(case, truth_of(subject, floats, gradients=False).beside(given(subject, case, gradients=False)), line)


def _refused_too(subject: Subject, case: Case, refusal: Exception) -> str:
    try:
        subject.call(case.values)
    except Exception:
        return "neither"
    if "not implemented for" in str(refusal):
        return "neither"  # torch lacks a kernel where the op has one
    lines = ["try:", f"    {case.call('reference')}", "except Exception:", "    refused = True", "else:"]
    lines += ["    refused = False", "try:", f"    {case.call()}", "except Exception:", "    pass", "else:"]
    lines += ["    assert not refused, 'the op takes what the reference refuses'"]
    raise Failed(f"{case.name}: it returns, where the reference raises {first_line(refusal)}", case, lines)
