"""Forward and backward run on torch's current stream: after earlier work on it, before later work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..accuracy.evaluate import Named, evaluate
from ..cases.case import Case
from ..memory import filled_by_torch
from ..outcome import Failed, Skipped
from ..subject import Subject, present
from . import _gpu

ON = ("cuda",)
ORDER = 60


def check(subject: Subject) -> str:
    looked_at, waited = 0, False
    cases = _gpu.writable_cases(subject)
    for choice in _gpu.choices(subject):
        for case in cases:
            with _gpu.chosen(subject, choice):
                seen = _Seen(subject, case, choice)
                if not seen.differs:
                    continue
                looked_at += 1
                waited |= not (seen.inputs_written_late(False) & seen.inputs_written_late(True))
                waited |= not seen.default_stream_busy()
    if not looked_at:
        raise Skipped("other inputs give the same results, so that none shows what it was computed from")
    return "it waits for the GPU, so that no order shows: see synchronisation" if waited else "on the current stream"


class _Seen:
    """A case, and what the op gives for it and for what its inputs hold before it is written into them."""

    def __init__(self, subject: Subject, case: Case, choice: str) -> None:
        self.subject, self.case, self.choice = subject, case, choice
        self.early = _gpu.other_values(case)
        self.gradients = subject.differentiates(case)
        self.expected = _gpu.evaluated(subject, case, self.gradients)
        self.differs = not _gpu.same(self.expected, _gpu.evaluated(subject, self.early, self.gradients))
        self.side, self.other = _gpu.side_streams()

    def _soil(self) -> None:
        """Leaves other numbers in what the side stream will be given of memory, where the right ones, from an earlier
        run, would hide what was read too early; and compiles, loads and allocates what is so at first."""
        with torch.cuda.stream(self.side):
            _gpu.evaluated(self.subject, self.early, self.gradients, draw=1)
        torch.cuda.synchronize()

    def inputs_written_late(self, backward_elsewhere: bool) -> bool:
        """The inputs are written on a stream that is held back, the op is called on that stream; backward with another
        stream current, where that is asked for. Whether all of it had been called before the inputs were written."""
        pending = False
        for seconds in _gpu.HOLDS:
            values = self.early.each_tensor(torch.clone, "{}")
            written = torch.cuda.Event()

            def called(arguments: Sequence[Any], seconds: float = seconds, written: torch.cuda.Event = written) -> Any:
                self.side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self.side):
                    _gpu.hold(seconds)
                    into = present(self.subject.arguments, arguments)
                    _gpu.write(into, present(self.subject.arguments, self.case.values))
                    written.record()
                    return self.subject.raw(arguments)

            self._soil()
            with torch.cuda.stream(torch.cuda.default_stream() if backward_elsewhere else self.side):
                found = evaluate(self.subject.arguments, called, values.values, gradients=self.gradients)
                pending = not written.query()
            torch.cuda.synchronize()
            self._judge(found, self._late_lines(), "computed before the stream it was called on had written its inputs")
            if pending:
                break
        return pending

    def default_stream_busy(self) -> bool:
        """The default stream is held back, the op called on another, its results read on a third that waits for the
        second alone. Whether they were read before the default stream was free."""
        pending = False
        for seconds in _gpu.HOLDS:
            free, done = torch.cuda.Event(), torch.cuda.Event()
            self._soil()
            with torch.cuda.stream(torch.cuda.default_stream()):
                _gpu.hold(seconds)
                free.record()
            with filled_by_torch(), torch.cuda.stream(self.side):
                found = _gpu.evaluated(self.subject, self.case, self.gradients)
                done.record()
            self.other.wait_event(done)
            with torch.cuda.stream(self.other):
                read = [(what, None if tensor is None else tensor.clone()) for what, tensor in found]
            self.other.synchronize()
            pending = not free.query()
            torch.cuda.synchronize()
            self._judge(read, self._busy_lines(), "not there yet when the stream it was called on had done")
            if pending:
                break
        return pending

    def _judge(self, found: Sequence[Named], lines: Sequence[str], what: str) -> None:
        wrong = _gpu.unlike(self.subject, self.case, found, self.expected)
        if not wrong:
            return
        name, _, difference = wrong.partition(": ")
        message = (
            f"{self.case.name}{_gpu.by(self.choice)}: the {name} was {what}: some of the work runs on another stream "
            f"than torch.cuda.current_stream(), as a launch on the default stream does ({difference})"
        )
        raise Failed(message, self.case, _gpu.using(self.choice, lines))

    def _late_lines(self) -> list[str]:
        return [
            f"expected = {_gpu.copied(self.case, self.gradients)}",
            *_gpu.written_otherwise(self.case),
            "torch.cuda.synchronize()",
            "with torch.cuda.stream(torch.cuda.Stream()):",
            "    torch.cuda._sleep(1_000_000_000)  # half a second",
            "    for each, value in zip(inputs, values):",
            "        each.copy_(value)",
            f"    found = {_gpu.copied(self.case, self.gradients)}",
            "torch.cuda.synchronize()",
            _gpu.EQUAL,
        ]

    def _busy_lines(self) -> list[str]:
        return [
            f"expected = {_gpu.copied(self.case, self.gradients)}",
            "torch.use_deterministic_algorithms(True, warn_only=True)  # fills what torch.empty gives with NaN",
            "side = torch.cuda.Stream()",
            "for held in (False, True):",
            "    torch.cuda.synchronize()",
            "    if held:",
            "        torch.cuda._sleep(1_000_000_000)  # half a second of the default stream",
            "    with torch.cuda.stream(side):",
            f"        found = {_gpu.copied(self.case, self.gradients)}",
            "    side.synchronize()",
            _gpu.EQUAL,
        ]
