"""Calls return while the GPU is still busy: none waits for it, forward or backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..accuracy.evaluate import evaluate
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from . import _gpu
from ._choice import has_gradients, outputs_of

ON = ("cuda",)
ORDER = 62
ERROR = 2
"""Of torch.cuda.set_sync_debug_mode: what waits raises."""


def check(subject: Subject) -> str:
    case = subject.first_case()
    gradients = has_gradients(subject, case)
    choices = _gpu.choices(subject)
    for choice in choices:
        with _gpu.chosen(subject, choice):
            _warm(subject, subject.raw, case, gradients)
            _as_torch_sees_it(subject, case, choice, gradients)
            _as_a_held_stream_shows(subject, case, choice, gradients)
    return "forward and backward" if gradients else "forward"


def _warm(subject: Subject, function: Callable[[Sequence[Any]], Any], case: Case, gradients: bool) -> None:
    """What is compiled, loaded, checked and allocated at first is so by now."""
    with torch.cuda.stream(_gpu.side_streams()[0]):
        for _ in range(2):
            evaluate(subject.arguments, function, case.values, gradients=gradients)
    torch.cuda.synchronize()


def _as_torch_sees_it(subject: Subject, case: Case, choice: str, gradients: bool) -> None:
    said = _refused(subject, subject.raw, case, gradients)
    if not said:
        return
    if _refused(subject, subject.inline, case, gradients):
        raise Skipped("its reference waits for the GPU too, as what depends on values must")
    lines = ['torch.cuda.set_sync_debug_mode("error")', outputs_of(case, gradients)]
    raise Failed(
        f"{case.name}{_gpu.by(choice)}: it waits for the GPU inside the call, by an operation of torch that does, as "
        f".item(), .cpu() and torch.tensor(..., device='cuda') do ({said})",
        case,
        _gpu.using(choice, [outputs_of(case, gradients), *lines]),
    )


def _refused(subject: Subject, function: Callable[[Sequence[Any]], Any], case: Case, gradients: bool) -> str:
    """What torch says of a call in which it waits."""
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode(ERROR)
    try:
        evaluate(subject.arguments, function, case.values, gradients=gradients)
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return ""


def _as_a_held_stream_shows(subject: Subject, case: Case, choice: str, gradients: bool) -> None:
    """What torch does not know of, as cudaDeviceSynchronize in C++: with work on the current and on the default stream,
    a call that has waited for either returns after that work has ended."""
    waited = ""
    for seconds in _gpu.HOLDS:
        waited = _waited(subject, case, gradients, seconds, subject.raw)
        if not waited:
            return
    _warm(subject, subject.inline, case, gradients)
    if all(_waited(subject, case, gradients, seconds, subject.inline) for seconds in _gpu.HOLDS):
        raise Skipped("its reference waits for the GPU too, or launches more than the GPU keeps waiting")
    lines = [
        "side, free, held = torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.Event()",
        "with torch.cuda.stream(side):",
        f"    {outputs_of(case, gradients)}",
        "torch.cuda.synchronize()",
        "torch.cuda._sleep(4_000_000_000)  # two seconds of the default stream",
        "free.record()",
        "with torch.cuda.stream(side):",
        "    torch.cuda._sleep(4_000_000_000)",
        "    held.record()",
        f"    {outputs_of(case, gradients)}",
        'assert not free.query() and not held.query(), "the call returned after the work before it had ended"',
    ]
    raise Failed(
        f"{case.name}{_gpu.by(choice)}: {waited} returns only when earlier work of the GPU has ended: it calls "
        "cudaDeviceSynchronize, cudaStreamSynchronize or cudaMemcpy, or the like, which torch does not see. Leave it "
        "away: the stream keeps the order",
        case,
        _gpu.using(choice, lines),
    )


def _waited(
    subject: Subject,
    case: Case,
    gradients: bool,
    seconds: float,
    function: Callable[[Sequence[Any]], Any],
) -> str:
    """'forward' or 'backward', whichever returned after the streams had been let go; nothing where neither did."""
    side, _ = _gpu.side_streams()
    held = [torch.cuda.Event(), torch.cuda.Event()]
    late = ""

    def called(values: Sequence[Any]) -> Any:
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
        evaluate(subject.arguments, called, case.values, gradients=gradients)
        late = late or ("backward" if any(event.query() for event in held) else "")
    torch.cuda.synchronize()
    return late
