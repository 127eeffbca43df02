"""Calls return while the GPU is still busy: none waits for it, forward or backward."""

from __future__ import annotations

from typing import Any

import torch

from ..accuracy.truth import Function
from ..cases.case import Case
from ..outcome import Skipped
from ..subject import Subject
from . import _gpu
from ._cases import has_gradients
from ._compare import with_kernel

ON = ("cuda",)
ORDER = 62
ERROR = 2
"""Of torch.cuda.set_sync_debug_mode: what waits raises."""


def check(subject: Subject) -> str:
    case = subject.first_case()
    for kernel in _gpu.kernels_to_try(subject):
        with with_kernel(subject, kernel):
            check_call(subject, case)
    return "forward and backward" if has_gradients(subject, case) else "forward"


def check_call(subject: Subject, case: Case) -> None:
    gradients = has_gradients(subject, case)
    _warm_up(subject, subject.raw, case, gradients)
    _check_by_torch(subject, case, gradients)
    _check_by_held_streams(subject, case, gradients)


def _warm_up(subject: Subject, function: Function, case: Case, gradients: bool) -> None:
    """Calls it, so that nothing is compiled, loaded, checked or allocated for the first time afterwards."""
    with torch.cuda.stream(_gpu.side_streams()[0]):
        for _ in range(2):
            subject.evaluate(case, gradients, function)
    torch.cuda.synchronize()


def _check_by_torch(subject: Subject, case: Case, gradients: bool) -> None:
    refusal = _refusal(subject, subject.raw, case, gradients)
    if not refusal:
        return
    if _refusal(subject, subject.inline, case, gradients):
        raise Skipped("its reference waits for the GPU too, as what depends on values must")
    raise case.failed(
        "it waits for the GPU inside the call, by an operation of torch that does, as .item(), .cpu() and "
        f"torch.tensor(..., device='cuda') do ({refusal})"
    )


def _refusal(subject: Subject, function: Function, case: Case, gradients: bool) -> str:
    """torch's error about a call in which it waits; '' if there is none."""
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode(ERROR)
    try:
        subject.evaluate(case, gradients, function)
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return ""


def _check_by_held_streams(subject: Subject, case: Case, gradients: bool) -> None:
    """Finds waits that torch does not know of, such as cudaDeviceSynchronize in C++: with work on the current and on
    the default stream, a call that has waited for either returns after that work has ended."""
    waited = ""
    for seconds in _gpu.HOLDS:
        waited = _waited(subject, case, gradients, seconds, subject.raw)
        if not waited:
            return
    _warm_up(subject, subject.inline, case, gradients)
    if all(_waited(subject, case, gradients, seconds, subject.inline) for seconds in _gpu.HOLDS):
        raise Skipped("its reference waits for the GPU too, or launches more than the GPU keeps waiting")
    raise case.failed(
        f"{waited} returns only when earlier work of the GPU has ended: it calls cudaDeviceSynchronize, "
        "cudaStreamSynchronize, cudaMemcpy or the like, which torch does not see. Remove the call: the stream keeps "
        "the order"
    )


def _waited(subject: Subject, case: Case, gradients: bool, seconds: float, function: Function) -> str:
    """'forward' or 'backward', whichever returned after the streams were released; '' if neither did."""
    side, _ = _gpu.side_streams()
    held = [torch.cuda.Event(), torch.cuda.Event()]
    late = ""

    def called(values: Any) -> Any:
        nonlocal late
        returned = function(values)
        late = "forward" if any(event.query() for event in held) else ""
        return returned

    torch.cuda.synchronize()
    for stream, event in zip((torch.cuda.default_stream(), side), held, strict=True):
        with torch.cuda.stream(stream):
            _gpu.hold(seconds)
            event.record()
    with torch.cuda.stream(side):
        subject.evaluate(case, gradients, called)
        late = late or ("backward" if any(event.query() for event in held) else "")
    torch.cuda.synchronize()
    return late
