"""What the GPU items share: work that delays a stream, changing inputs, and comparison of results."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from functools import cache

import torch

from ...errors import LanguageMissingError, ToolMissingError
from ...operator.op import Op
from ..accuracy.evaluate import Named, evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Truth
from ..cases.case import Case
from ..memory import same_bits
from ..subject import Subject
from ._choice import deterministic, outputs_of

HOLDS = (0.03, 0.25, 2.0)
"""Seconds for which a stream is held back. The longer ones are for a slow host, and for an op that waits: what is still
held back when a call returns was not waited for, however long the call took."""
CYCLES = 2_000_000_000
"""Of a GPU in a second, about; where it has fewer, a stream is held back longer."""


# --- What is looked at ------------------------------------------------------------------------------------------------


def writable_cases(subject: Subject) -> list[Case]:
    """Small cases with elements in tensors of their own, so that they can be written into: one, or several where level
    is full. Skipped where no two calls are alike."""
    cases = [subject.first_case()]
    if subject.full:
        others = [case for case in subject.some_cases() if case.has_elements]
        cases += [case for case in others if case.lines != cases[0].lines][:3]
    deterministic(subject, cases[0])
    return [case.each_tensor(torch.clone, "{}.clone()") for case in cases]


def choices(subject: Subject) -> list[str]:
    """ "" for the kernel that the op takes by itself, and at level "full" the names of the others. One that cannot
    be built here, for want of its language or compiler, is left out."""
    found = [""]
    if not subject.full or not isinstance(subject.op, Op):
        return found
    case = subject.first_case()
    for name in dict.fromkeys(subject.kernels):
        if name == "default":
            continue
        with contextlib.suppress(LanguageMissingError, ToolMissingError), subject.op.using(name):
            subject.call(case.values)
            found.append(name)
    return found


def chosen(subject: Subject, choice: str) -> contextlib.AbstractContextManager[object]:
    """Inside, the op runs that kernel."""
    return subject.op.using(choice) if choice and isinstance(subject.op, Op) else contextlib.nullcontext()


def by(choice: str) -> str:
    """' by the kernel numba', for messages."""
    return f" by the kernel {choice}" if choice else ""


def using(choice: str, lines: Sequence[str]) -> list[str]:
    """Lines of a reproduction, run by that kernel."""
    return [f'with op.using("{choice}"):', *(f"    {line}" for line in lines)] if choice else list(lines)


# --- Inputs that change -----------------------------------------------------------------------------------------------

_ROLLED = "{0}.flatten().roll(1).view_as({0})"
_SMALLER = f"(0.75 * {_ROLLED} if {{0}}.is_floating_point() else {{0}}.clone())"


def other_values(case: Case) -> Case:
    """Other numbers in the same shapes: each floating tensor's own, in other places and smaller, for an op may take
    positive ones only, or probabilities. Integers may be indices and stay, unless there is nothing else."""
    if any(tensor.is_floating_point() for tensor in case.every_tensor()):
        return case.each_tensor(_smaller, _SMALLER)
    return case.each_tensor(_rolled, _ROLLED)


def _rolled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten().roll(1).view_as(tensor)


def _smaller(tensor: torch.Tensor) -> torch.Tensor:
    return 0.75 * _rolled(tensor) if tensor.is_floating_point() else tensor.clone()


def write(into: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    """On the current stream, and unseen by autograd."""
    for tensor, value in zip(into, values, strict=True):
        tensor.data.copy_(value)


def written_otherwise(case: Case) -> list[str]:
    """Lines that write other values into the inputs, and keep their own: as `other_values`, in place."""
    names = []
    for argument, value in zip(case.arguments, case.values, strict=True):
        if isinstance(value, torch.Tensor):
            names.append(argument.name)
        elif argument.is_tensor and value is not None:
            names.append(f"*(each for each in {argument.name} if each is not None)")
    floating = any(tensor.is_floating_point() for tensor in case.every_tensor())
    other = (_SMALLER if floating else _ROLLED).format("each")
    return [
        f"inputs = [{', '.join(names)}]",
        "values = [each.clone() for each in inputs]",
        "for each in inputs:",
        f"    each.copy_({other})",
    ]


# --- Results that must be the same ------------------------------------------------------------------------------------


def evaluated(subject: Subject, case: Case, gradients: bool, draw: int = 0) -> list[Named]:
    """The op's results and gradients, computed on the current stream; `draw` picks what the results' gradients are."""
    return evaluate(subject.arguments, subject.raw, case.values, gradients=gradients, draw=draw)


def unlike(subject: Subject, case: Case, found: Sequence[Named], expected: Sequence[Named]) -> str:
    """'result: 1.5 where 2 is right': the first that is not what the same call gave elsewhere; nothing where all are.
    Where bits differ the reference decides, for an op need not give the same bits twice."""
    if same(found, expected):
        return ""
    gradients = any(what.startswith("gradient") for what, _ in found)
    rounding = rounding_of(subject.op, case.values, gradients)
    truth = Truth(subject.arguments, subject.inline, case.values, gradients, rounding)
    return next((f"{each.what}: {each.message}" for each in truth.beside(found) if not each), "")


def same(found: Sequence[Named], expected: Sequence[Named]) -> bool:
    return same_bits([tensor for _, tensor in found], [tensor for _, tensor in expected])


def copied(case: Case, gradients: bool) -> str:
    """The expression for copies of all that a call gives, made on the current stream right behind it."""
    return f"[each if each is None else each.clone() for each in {outputs_of(case, gradients)}]"


EQUAL = "torch.testing.assert_close(found, expected, equal_nan=True)"


# --- The GPU ----------------------------------------------------------------------------------------------------------


def hold(seconds: float) -> None:
    """Keeps the current stream busy for about so long."""
    torch.cuda._sleep(int(seconds * CYCLES))


@cache
def side_streams() -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Two that are neither the default stream nor each other. The same ones always, for each has memory of its own."""
    first = torch.cuda.Stream()
    second = torch.cuda.Stream()
    return first, second


@cache
def cuda_runtime() -> ctypes.CDLL | None:
    """The CUDA runtime that torch uses, by ctypes, or None where torch has it built in."""
    major = (torch.version.cuda or "").split(".")[0]
    try:
        return ctypes.CDLL(f"libcudart.so.{major}", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
