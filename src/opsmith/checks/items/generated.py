"""Calls that Hypothesis derives from the samples match too, and the op accepts what the reference accepts."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..cases.acceptance import taken, work
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from ._cases import skip_random
from ._compare import check_comparable

ON = ("cpu", "cuda", "emulated")
EXAMPLES = {"quick": 25, "full": 300}
EXAMPLES_EMULATED = {"quick": 8, "full": 40}
MOST, MOST_EMULATED = 4096, 512
"""Elements of a tensor."""
LONG = 512
"""Operators that the reference may call."""
PATIENCE = 30.0
"""Seconds spent on shrinking a failing call."""


def check(subject: Subject) -> str:
    from ..cases.strategies import beside_samples

    examples = (EXAMPLES_EMULATED if subject.emulated else EXAMPLES)[subject.level]
    most = MOST_EMULATED if subject.emulated else MOST
    search = _Search(subject, examples)
    skip_random(subject, subject.first_case(*subject.dtypes[:1]))
    for case in beside_samples(subject, most):
        search.compare(case)
    # Four times as many, since several are not valid calls, or repeat an earlier one.
    run(subject, search, 4 * examples, most)
    if not search.compared:
        raise Skipped(f"of {search.refused} calls generated from the samples the reference takes none")
    return f"{search.compared} calls, {search.refused} more that the reference does not take"


def run(subject: Subject, look: Callable[[Case], None], examples: int, most: int) -> None:
    """Calls `look` with one case after another. What it raises is raised for the smallest case that was found."""
    import hypothesis

    from ..cases.strategies import calls

    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
    )

    @hypothesis.seed(subject.seed)
    @settings
    @hypothesis.given(calls(subject, most))
    def property(case: Case) -> None:
        look(case)

    property()


class _Search:
    """Compares calls and keeps each outcome, since Hypothesis runs a call more than once."""

    def __init__(self, subject: Subject, examples: int) -> None:
        self.subject = subject
        self.examples = examples
        self.outcomes: dict[tuple[str, ...], Failed | None] = {}
        self.compared = self.refused = 0
        self._until: float | None = None
        """The time until which a failing call is shrunk."""

    def __call__(self, case: Case) -> None:
        from hypothesis import assume

        if case.lines not in self.outcomes:
            if self.compared >= self.examples and self._until is None:
                return
            if self._until is not None and time.monotonic() > self._until:
                assume(False)
            try:
                self.compare(case)
                self.outcomes[case.lines] = None
            except Failed as failed:
                self.outcomes[case.lines] = failed
        if (failed_before := self.outcomes[case.lines]) is not None:
            self._until = self._until or time.monotonic() + PATIENCE
            raise failed_before

    def compare(self, case: Case) -> None:
        short_enough = taken(self.subject, case) and work(self.subject, case) <= LONG
        compared = short_enough and check_comparable(self.subject, case)
        self.compared += compared
        self.refused += not compared
