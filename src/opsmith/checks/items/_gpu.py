"""What the GPU items share: kernels to try, streams that are held back, other inputs, comparison of results."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import torch

from ...errors import LanguageMissingError, ToolMissingError
from ...operator.op import Op
from ..accuracy.evaluate import Named
from ..cases.case import Case
from ..subject import Subject
from ._cases import skip_random
from ._compare import reference_truth, same, with_kernel

HOLDS = (0.03, 0.25, 2.0)
"""Seconds for which a stream is held back. The longer ones are for a slow host, and for an op that waits: if the stream
is still held back when a call returns, the call did not wait for it."""
CYCLES = 2_000_000_000
"""Roughly what a GPU runs per second; on a slower one a stream is held back longer."""
Result = TypeVar("Result")


def on_every_kernel(subject: Subject, check_call: Callable[[Subject, Case], Result]) -> list[Result]:
    """Checks small calls, whose tensors may be written to, with every kernel: one call, and several at level "full"."""
    cases = [subject.first_case()]
    if subject.full:
        others = [case for case in subject.some_cases() if case.has_elements]
        cases += [case for case in others if case.lines != cases[0].lines][:3]
    skip_random(subject, cases[0])
    cases = [case.each_tensor(torch.clone, "{}.clone()") for case in cases]
    found = []
    for kernel in kernels_to_try(subject):
        with with_kernel(subject, kernel):
            found += [check_call(subject, case) for case in cases]
    return found


def kernels_to_try(subject: Subject) -> list[str]:
    """'' for the kernel that the op selects, and at level "full" the names of the others, without those that cannot be
    built here because their language or compiler is missing."""
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


def other_values(case: Case) -> Case:
    """Other numbers in the same shapes: each floating tensor's own, in other places and smaller, since an op may accept
    only positive numbers, or probabilities. Integers may be indices and stay, unless there is nothing else."""
    floating = any(tensor.is_floating_point() for tensor in case.every_tensor())

    def change(tensor: torch.Tensor) -> torch.Tensor:
        rolled = tensor.flatten().roll(1).view_as(tensor)
        if not floating:
            return rolled
        return 0.75 * rolled if tensor.is_floating_point() else tensor.clone()

    return case.each_tensor(change, "{}")


def write(into: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    """Writes values on the current stream, without autograd."""
    for tensor, value in zip(into, values, strict=True):
        tensor.data.copy_(value)


def difference(subject: Subject, case: Case, found: Sequence[Named], expected: Sequence[Named]) -> tuple[str, str]:
    """("result", "1.5 where 2 is right"): the first wrong output, or ("", ""). If bits differ from what the same call
    returned elsewhere, the reference decides, since an op may return different bits each time."""
    if same(found, expected):
        return "", ""
    truth = reference_truth(subject, case, any(what.startswith("gradient") for what, _ in found))
    return next(((each.what, each.message) for each in truth.beside(found) if not each), ("", ""))


def hold(seconds: float) -> None:
    """Keeps the current stream busy for about so long."""
    torch.cuda._sleep(int(seconds * CYCLES))


@cache
def side_streams() -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Two streams that are not the default one. Always the same, since each has its own memory."""
    return torch.cuda.Stream(), torch.cuda.Stream()


@cache
def cuda_runtime() -> ctypes.CDLL | None:
    """The CUDA runtime that torch uses, by ctypes; None if it is linked into torch."""
    major = (torch.version.cuda or "").split(".")[0]
    try:
        return ctypes.CDLL(f"libcudart.so.{major}", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
