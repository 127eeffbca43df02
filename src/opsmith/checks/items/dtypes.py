"""Every dtype that the reference accepts gives its dtypes and values, also mixed and under any default dtype.

What the reference refuses is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch

from ..cases.case import Case
from ..outcome import ReferenceRaises, first_line
from ..subject import DTYPES, Subject, short
from ._cases import skip_random, small_case
from ._compare import check_match, failing_on_error, reference_truth

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
    skip_random(subject, base)
    base = replace(base, lines=(*base.lines, base.call()))  # a kernel's first results are checked more closely
    subject.call(base.values)
    taken, refused = 0, []
    for name, case in _cases(subject, base):
        outcome = check_call(subject, case)
        taken += outcome == "taken"
        refused += [name] if outcome == "refused" else []
    _check_other_default(subject, base)
    summary = f"{taken} dtypes and mixtures as the reference has them"
    return summary + (f"; refused, though the reference takes them: {', '.join(refused)}" if refused else "")


def check_call(subject: Subject, case: Case) -> str:
    """'taken', 'refused' by the op alone, or 'neither' if the reference refuses it too."""
    try:
        expected = subject.reference(case.values)
    except Exception as refusal:
        try:
            subject.call(case.values)
        except Exception:
            return "neither"
        if "not implemented for" not in str(refusal):  # else torch lacks a kernel that the op has
            raise case.failed(f"it returns, where the reference raises {first_line(refusal)}") from None
        return "neither"
    try:
        results = subject.call(case.values)
    except Exception:
        return "refused"
    for index, (mine, theirs) in enumerate(zip(results, expected, strict=True)):
        if mine.dtype != theirs.dtype:
            name = "the result" if len(results) == 1 else f"result {index}"
            raise case.failed(f"{name} is {short(mine.dtype)}, the reference's {short(theirs.dtype)}")
    _check_values(subject, case, expected)
    return "taken"


def _cases(subject: Subject, base: Case) -> Iterator[tuple[str, Case]]:
    prefix = base.name.rpartition(",")[0]
    picks = any(result.dtype is torch.int64 for result in subject.reference(base.values))  # as indices are
    for dtype in (*DTYPES, *OTHERS):
        ranked = picks and not (dtype.is_floating_point or dtype.is_complex)
        case = _ranked(base, dtype) if ranked else _cast(base, dtype, dtype)
        if case is not None:
            yield short(dtype), case.named(f"{prefix}, {short(dtype)}")
    for argument, tensor in base.tensors():
        if tensor.dtype is torch.int64 and not argument.mutated:
            code = f"{argument.name}.to(torch.int32)"
            name = f"{base.name}, {argument.name} in int32"
            yield code, base.changed(argument.name, tensor.to(torch.int32), code, name)
    if len(base.floating()) < 2:
        return
    for first, other in MIXED:
        name = f"{short(first)} with {short(other)}"
        yield name, _cast(base, first, other).named(f"{prefix}, {name}")
    argument, tensor = base.floating()[1]
    if subject.keeps_layout and not argument.mutated:
        # A tensor without dimensions takes no part in promotion within its kind.
        name = "float32 with a float64 of no dimension"
        code = f"{argument.name}.reshape(-1)[0].to(torch.float64)"
        yield name, base.changed(argument.name, tensor.reshape(-1)[0].to(torch.float64), code, name)


def _cast(case: Case, first: torch.dtype, other: torch.dtype) -> Case:
    dtypes = iter([first])
    for argument, tensor in case.floating():
        dtype = next(dtypes, other)
        if tensor.dtype != dtype:
            case = case.changed(argument.name, tensor.to(dtype), f"{argument.name}.to({dtype})")
    return case


def _ranked(case: Case, dtype: torch.dtype) -> Case | None:
    """Casts the ranks of the numbers, of which no two are equal: which of several equal numbers is picked, as the
    largest or the first, is undefined. None if the dtype has fewer numbers."""
    for argument, tensor in case.floating():
        info = None if dtype is torch.bool else torch.iinfo(dtype)
        if info is None or tensor.numel() > info.max - info.min:
            return None
        down = 0 if info.min == 0 else tensor.numel() // 2
        name, order = argument.name, tensor.flatten().argsort().argsort().sub(down).reshape(tensor.shape)
        code = f"{name}.flatten().argsort().argsort().sub({down}).reshape({name}.shape).to({dtype})"
        case = case.changed(name, order.to(dtype), code)
    return case


def _check_other_default(subject: Subject, base: Case) -> None:
    """With float64 as the dtype of torch.zeros(n), unless the reference itself depends on that."""
    line = "torch.set_default_dtype(torch.float64)"
    case = replace(base, lines=(*base.lines, line)).named(f"{base.name}, after {line}")
    before, usual = torch.get_default_dtype(), subject.reference(base.values)
    try:
        torch.set_default_dtype(torch.float64)
        if [each.dtype for each in subject.reference(base.values)] == [each.dtype for each in usual]:
            with failing_on_error(case, [case.call()]):
                subject.call(case.values)
            check_call(subject, case)
    finally:
        torch.set_default_dtype(before)


def _check_values(subject: Subject, case: Case, expected: list[torch.Tensor]) -> None:
    """Integers have no truth in float64. If the reference first converts them to float32, its truth is that of the
    float32 call."""
    if case.floating() or not any(result.dtype is torch.float32 for result in expected):
        with contextlib.suppress(ReferenceRaises):
            check_match(subject, case, bool(case.floating()) and subject.differentiates(case))
        return
    floats = case.each_tensor(lambda t: t if t.is_complex() else t.to(torch.float32), "{}.to(torch.float32)")
    try:
        found = subject.reference(floats.values)
        same = all(a.dtype is b.dtype and torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    except Exception:
        same = False
    if same:
        check_match(subject, case, False, truth=reference_truth(subject, floats, gradients=False), lines=())
