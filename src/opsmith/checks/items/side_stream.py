"""Forward and backward run on torch's current stream: after earlier work on it, before later work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..accuracy.evaluate import Named
from ..cases.case import Case
from ..memory import filled_by_torch
from ..outcome import Skipped
from ..subject import Subject, present
from . import _gpu
from ._compare import same

ON = ("cuda",)
ORDER = 60


def check(subject: Subject) -> str:
    seen = [waited for waited in _gpu.on_every_kernel(subject, check_call) if waited is not None]
    if not seen:
        raise Skipped("other inputs give the same results, so that none shows what it was computed from")
    return "it waits for the GPU, so that no order shows: see synchronisation" if any(seen) else "on the current stream"


def check_call(subject: Subject, case: Case) -> bool | None:
    """Whether the call waits for the GPU, which hides the order; None if other inputs give the same results."""
    order = _Order(subject, case)
    if not order.shows:
        return None
    checks = (
        lambda seconds: order.inputs_written_late(seconds, backward_elsewhere=False),
        lambda seconds: order.inputs_written_late(seconds, backward_elsewhere=True),
        order.default_stream_busy,
    )
    # Held for longer until the stream is still busy when the call returns.
    pending = [any(check(seconds) for seconds in _gpu.HOLDS) for check in checks]
    return not all(pending)


class _Order:
    """A case, and what the op returns for it and for what its inputs hold before it is written into them."""

    def __init__(self, subject: Subject, case: Case) -> None:
        self.subject, self.case = subject, case
        self.early = _gpu.other_values(case)
        self.gradients = subject.differentiates(case)
        self.expected = subject.evaluate(case, self.gradients)
        self.shows = not same(self.expected, subject.evaluate(self.early, self.gradients))
        self.side, self.other = _gpu.side_streams()

    def inputs_written_late(self, seconds: float, backward_elsewhere: bool) -> bool:
        """Writes the inputs on a stream that is held back, and calls the op on that stream; backward with another
        stream current, if asked for. Returns whether everything was called before the inputs were written."""
        values = self.early.each_tensor(torch.clone, "{}")
        written = torch.cuda.Event()

        def called(arguments: Sequence[Any]) -> Any:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                _gpu.hold(seconds)
                _gpu.write(*(present(self.subject.arguments, each) for each in (arguments, self.case.values)))
                written.record()
                return self.subject.raw(arguments)

        self._spoil_memory()
        with torch.cuda.stream(torch.cuda.default_stream() if backward_elsewhere else self.side):
            found = self.subject.evaluate(values, self.gradients, called)
            pending = not written.query()
        torch.cuda.synchronize()
        self._require(found, "computed before the stream it was called on had written its inputs")
        return pending

    def default_stream_busy(self, seconds: float) -> bool:
        """Holds back the default stream, calls the op on a second, and reads its results on a third that waits for the
        second alone. Returns whether they were read before the default stream was free."""
        free, done = torch.cuda.Event(), torch.cuda.Event()
        self._spoil_memory()
        with torch.cuda.stream(torch.cuda.default_stream()):
            _gpu.hold(seconds)
            free.record()
        with filled_by_torch(), torch.cuda.stream(self.side):
            found = self.subject.evaluate(self.case, self.gradients)
            done.record()
        self.other.wait_event(done)
        with torch.cuda.stream(self.other):
            read = [(what, None if tensor is None else tensor.clone()) for what, tensor in found]
        self.other.synchronize()
        pending = not free.query()
        torch.cuda.synchronize()
        self._require(read, "not there yet when the stream it was called on was done")
        return pending

    def _spoil_memory(self) -> None:
        """Leaves other numbers in the memory that the side stream will allocate, in which correct ones from an earlier
        run would hide what was read too early. The call also compiles, loads and allocates what is needed once."""
        with torch.cuda.stream(self.side):
            self.subject.evaluate(self.early, self.gradients, draw=1)
        torch.cuda.synchronize()

    def _require(self, found: Sequence[Named], what: str) -> None:
        name, difference = _gpu.difference(self.subject, self.case, found, self.expected)
        if name:
            raise self.case.failed(
                f"the {name} was {what}: some of the work runs on another stream than torch.cuda.current_stream(), as "
                f"a launch on the default stream does ({difference})"
            )
