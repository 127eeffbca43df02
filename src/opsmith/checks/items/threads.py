"""Eight threads calling at once, forward and backward, get the same results as one, also on a process's first call."""

from __future__ import annotations

from .. import memory
from ..calls.concurrency import Call, assert_threads_agree, calls_of
from ..cases.case import Case
from ..outcome import Failed, Skipped, Uncovered
from ..process import run
from ..subject import TOO_LARGE, Subject
from ._cases import arguments_of, has_gradients, skip_random, various_cases

LIMIT = 1 << 12
"""Elements: small calls overlap more often."""
THREADS = 8
ROUNDS, ROUNDS_IN_FULL = 4, 40


def check(subject: Subject) -> str:
    cases = _cases(subject)
    skip_random(subject, cases[0])
    calls = [call for case in cases for call in _calls(subject, case, THREADS // len(cases))]
    for call in calls:
        if not memory.same_bits(call(), call()):
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


def _calls(subject: Subject, case: Case, count: int) -> list[Call]:
    positional, keyword = subject.arranged(case.values)
    return calls_of(subject.op, *positional, gradients=has_gradients(subject, case), count=count, **keyword)


def _lines(subject: Subject, cases: list[Case], rounds: int) -> list[str]:
    module = "opsmith.checks.calls.concurrency"
    lines = ["calls = []"]
    for case in cases:
        options = f"gradients={has_gradients(subject, case)}, count={THREADS // len(cases)}"
        lines += [*case.lines, f"calls += {module}.calls_of(op, {arguments_of(case)}, {options})"]
    return [*lines, f"{module}.assert_threads_agree(calls, {rounds})"]


def _check_first_calls(subject: Subject, cases: list[Case]) -> str:
    lines = _lines(subject, cases, 1)
    try:
        finished = run(subject, lines)
    except Skipped as reason:
        return f"no first calls: {reason}"
    if finished.status != 0:
        raise Failed(f"{cases[0].name}: the first calls of a new process, at once: {finished.message}", None, lines)
    return "the first calls of a new process"
