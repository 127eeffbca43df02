"""Calls from many threads at once, and from a forked process."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import values as call_values
from ..accuracy.evaluate import outputs
from ..memory import same_bits

if TYPE_CHECKING:
    from ...operator.adopted import Adopted
    from ...operator.op import Op

SECONDS = 30

Call = Callable[[], "Sequence[torch.Tensor | None]"]


def calls_of(op: Op | Adopted, *args: Any, gradients: bool = True, count: int = 4, **kwargs: Any) -> list[Call]:
    """Calls with these arguments, forward and backward, each with its floating tensors scaled differently."""
    arguments, values = op.signature.arguments, op.signature.bind_call(args, kwargs)

    def call(place: int) -> Call:
        scale = 1 - place / 16
        own = call_values.mapped(arguments, values, lambda t: t * scale if t.is_floating_point() else t)
        positional, keyword = op.signature.arranged(own)
        return lambda: outputs(op, *positional, gradients=gradients, **keyword)

    return [call(place) for place in range(count)]


def assert_threads_agree(calls: Sequence[Call], rounds: int = 1) -> None:
    """Raises AssertionError unless all calls, made at once in a thread each, give bitwise what each gives alone
    afterwards. If these are the first calls of a process, they race to initialise the op."""
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
    """Which tensor differs, and in how many elements."""
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
    """How a call ends in a forked process with one thread, such as a DataLoader worker: 'true', 'false', 'raises',
    'hangs' or 'dies'."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about forking a process with threads, which is tested here
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
