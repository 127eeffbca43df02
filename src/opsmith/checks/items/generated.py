"""Calls that Hypothesis derives from the samples match too, and the op accepts what the reference accepts."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..cases.acceptance import taken, work
from ..cases.case import Case
from ..outcome import Failed, ReferenceRaises, Skipped
from ..subject import Subject
from ._choice import deterministic
from ._truth import given, judged, truth_of

ON = ("cpu", "cuda", "emulated")
EXAMPLES = {"quick": 25, "full": 300}
EXAMPLES_EMULATED = {"quick": 8, "full": 40}
MOST, MOST_EMULATED = 4096, 512
"""Elements of a tensor."""
LONG = 512
"""Operators that the reference may call."""
PATIENCE = 30.0
"""Seconds that go into making a failing call smaller."""


def check(subject: Subject) -> str:
    examples = (EXAMPLES_EMULATED if subject.emulated else EXAMPLES)[subject.level]
    search = _Search(subject, examples)
    deterministic(subject, subject.first_case(*subject.dtypes[:1]))
    for case in _beside(subject):
        search.look_at(case)
    # Several that are drawn are no calls, or the same again.
    run(subject, search, 4 * examples, MOST_EMULATED if subject.emulated else MOST)
    if not search.compared:
        raise Skipped(f"of {search.refused} calls made up after the samples the reference takes none")
    return f"{search.compared} calls, {search.refused} more that the reference does not take"


def run(subject: Subject, look: Callable[[Case], None], examples: int, most: int) -> None:
    """Calls `look` with one case after another; what it raises, it raises for the smallest that could be found."""
    import hypothesis

    from ..cases.strategies import calls

    found = calls(subject, most)
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
    @hypothesis.given(found)
    def property(case: Case) -> None:
        look(case)

    property()


def _beside(subject: Subject) -> list[Case]:
    from ..cases.strategies import beside_samples

    return beside_samples(subject, MOST_EMULATED if subject.emulated else MOST)


class _Search:
    """What is looked at in one call, remembered: Hypothesis asks twice. Once a failure has been found, it may be made
    smaller for a while."""

    def __init__(self, subject: Subject, examples: int) -> None:
        self.subject = subject
        self.examples = examples
        self.seen: dict[tuple[str, ...], Failed | None] = {}
        self.compared = self.refused = 0
        self._until: float | None = None

    def __call__(self, case: Case) -> None:
        from hypothesis import assume

        key = case.lines
        if key not in self.seen:
            if self.compared >= self.examples and self._until is None:
                return
            if self._until is not None and time.monotonic() > self._until:
                assume(False)
            self.seen[key] = self._looked_at(case)
        failed = self.seen[key]
        if failed is not None:
            self._until = self._until or time.monotonic() + PATIENCE
            raise failed

    def look_at(self, case: Case) -> None:
        """A case that is not to be made smaller."""
        failed = self._looked_at(case)
        if failed is not None:
            raise failed

    def _looked_at(self, case: Case) -> Failed | None:
        subject = self.subject
        if not taken(subject, case) or work(subject, case) > LONG:
            self.refused += 1
            return None
        try:
            gradients = subject.differentiates(case)
            truth = truth_of(subject, case, gradients)
            if not (subject.keeps_layout or truth.is_finite):
                self.refused += 1  # what is inf or NaN in one order of adding up may be none in another
                return None
            judged(case, truth.beside(given(subject, case, gradients)))
        except Failed as failed:
            return failed
        except ReferenceRaises:
            self.refused += 1
            return None
        self.compared += 1
        return None
