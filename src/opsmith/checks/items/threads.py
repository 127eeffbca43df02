"""Eight threads calling at once, forward and backward, get the same results as one, also on a process's first call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...operator.adopted import Adopted
from ...operator.op import Op
from .. import values as call_values
from ..accuracy.evaluate import outputs
from ..cases.case import Case
from ..memory import same_bits
from ..outcome import Failed, Skipped, Uncovered
from ..reproduction import in_new_process
from ..subject import TOO_LARGE, Subject
from ._cases import arguments_of, has_gradients, skip_random, various_cases

LIMIT = 1 << 12
"""Elements: small calls overlap more often."""
THREADS = 8
ROUNDS, ROUNDS_IN_FULL = 4, 40
SECONDS = 30
"""After which a thread counts as blocked."""

Call = Callable[[], "Sequence[torch.Tensor | None]"]


def check(subject: Subject) -> str:
    cases = _cases(subject)
    skip_random(subject, cases[0])
    calls = []
    for case in cases:
        positional, keyword = subject.signature.arranged(case.values)
        gradients, count = has_gradients(subject, case), THREADS // len(cases)
        calls += calls_of(subject.op, *positional, gradients=gradients, count=count, **keyword)
    for call in calls:
        if not same_bits(call(), call()):
            raise Skipped("two calls give different numbers in one thread already")
    rounds = ROUNDS_IN_FULL if subject.full else ROUNDS
    try:
        assert_threads_agree(calls, rounds)
    except AssertionError as error:
        raise Failed(str(error), None, _lines(subject, cases, ROUNDS_IN_FULL)) from None
    summary = f"{len(calls)} threads, {rounds} calls each"
    return f"{summary}, and {_check_first_calls(subject, cases)}" if subject.full else summary


def _cases(subject: Subject) -> list[Case]:
    """Two of different sizes, if there are two."""
    filled = [case for case in various_cases(subject, LIMIT) if case.has_elements]
    if not filled:
        raise Uncovered(f"{TOO_LARGE} to {LIMIT} elements")
    others = [case for case in filled if case.numel != filled[0].numel and case.dtype == filled[0].dtype]
    return [filled[0], *others[:1]]


def _lines(subject: Subject, cases: list[Case], rounds: int) -> list[str]:
    module = "opsmith.checks.items.threads"
    lines = ["calls = []"]
    for case in cases:
        options = f"gradients={has_gradients(subject, case)}, count={THREADS // len(cases)}"
        lines += [*case.lines, f"calls += {module}.calls_of(op, {arguments_of(case)}, {options})"]
    return [*lines, f"{module}.assert_threads_agree(calls, {rounds})"]


def _check_first_calls(subject: Subject, cases: list[Case]) -> str:
    lines = _lines(subject, cases, 1)
    try:
        finished = in_new_process(subject, lines)
    except Skipped as reason:
        return f"no first calls: {reason}"
    if finished.status != 0:
        raise Failed(f"{cases[0].name}: the first calls of a new process, at once: {finished.message}", None, lines)
    return "the first calls of a new process"


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
    pairs = list(zip(found, alone, strict=True))
    place = next(index for index, (mine, theirs) in enumerate(pairs) if not same_bits([mine], [theirs]))
    which, (mine, theirs) = f"tensor {place + 1} of {len(alone)}, results and then gradients", pairs[place]
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return f"{which}, has another shape"
    differing = int((mine != theirs).sum())
    return f"{which}, in {differing} of {mine.numel()} elements" if differing else f"{which}, in the sign of a zero"
