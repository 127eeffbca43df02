"""Calls from many threads at once, and from a forked process."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...reference.signature import flatten, unflatten
from ..accuracy.evaluate import outputs
from ..memory import same_bits

if TYPE_CHECKING:
    from ...operator.adopted import Adopted
    from ...operator.op import Op

SECONDS = 30

Call = Callable[[], "Sequence[torch.Tensor | None]"]


def calls_of(op: Op | Adopted, *args: Any, gradients: bool = True, count: int = 4, **kwargs: Any) -> list[Call]:
    """Calls with these arguments, each with numbers of its own in its floating tensors, forward and backward."""
    values = op.signature.bind_call(args, kwargs)

    def call(place: int) -> Call:
        by = 1 - place / 16
        tensors = [
            t * by if t is not None and t.is_floating_point() else t for t in flatten(op.signature.arguments, values)
        ]
        own = unflatten(op.signature.arguments, values, tensors)
        pairs = list(zip(op.signature.arguments, own, strict=True))
        positional = [value for argument, value in pairs if not argument.keyword_only]
        keyword = {argument.name: value for argument, value in pairs if argument.keyword_only}
        return lambda: outputs(op, *positional, gradients=gradients, **keyword)

    return [call(place) for place in range(count)]


def assert_threads_agree(calls: Sequence[Call], rounds: int = 1) -> None:
    """Raises AssertionError unless each call gives in a thread of its own, all of them at once, what it gives alone
    afterwards, in every bit. As the first calls of a process, they race for its first call."""
    together: list[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(place: int) -> None:
        try:
            barrier.wait(SECONDS)
            together[place] = [calls[place]() for _ in range(rounds)]
        except BaseException as error:
            together[place] = error

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads), f"a thread has not returned after {SECONDS} s"
    for found in together:
        if isinstance(found, BaseException):
            raise AssertionError(f"a thread raised {type(found).__name__}: {found}") from found
    for place, call in enumerate(calls):
        alone = call()
        wrong = [found for found in together[place] if not same_bits(found, alone)]
        message = f"thread {place} of {len(calls)} got different results from the same call made alone"
        assert not wrong, f"{message}: {_difference(wrong[0], alone)}"


def _difference(found: Sequence[torch.Tensor | None], alone: Sequence[torch.Tensor | None]) -> str:
    """Which tensor is not the same, and how much of it."""
    for place, (mine, theirs) in enumerate(zip(found, alone, strict=True), 1):
        if same_bits([mine], [theirs]):
            continue
        which = f"tensor {place} of {len(alone)}, results and then gradients"
        if mine is None or theirs is None or mine.shape != theirs.shape:
            return f"{which}, has another shape"
        differing = int((mine != theirs).sum())
        return f"{which}, in {differing} of {mine.numel()} elements" if differing else f"{which}, in the sign of a zero"
    return "how many tensors there are"


def in_fork(function: Callable[[], bool], seconds: int = 10) -> str:
    """How a call ends in a forked process that uses one thread, as torch's DataLoader has its workers do: 'true',
    'false', 'raises', 'hangs' or 'dies'."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forking where there are threads, which is what is tried here
        child = os.fork()
    if child == 0:
        status = 2
        try:
            signal.alarm(seconds)  # ends the child, whatever it waits for
            torch.set_num_threads(1)
            status = 0 if function() else 1
        except BaseException:
            status = 2
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "true", 1: "false", 2: "raises", -signal.SIGALRM: "hangs"}.get(code, "dies")
