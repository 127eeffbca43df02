"""The op beside its reference, as several items ask for it."""

from __future__ import annotations

from collections.abc import Sequence

from ..cases import Case
from ..compare import Comparison, compare_calls
from ..outcome import Failed
from ..subject import Subject


def compared(subject: Subject, case: Case, gradients: bool = True) -> list[Comparison]:
    """Results, and gradients where they are asked for and there are any."""
    gradients = gradients and subject.differentiates(case)
    return compare_calls(
        subject.arguments,
        subject.raw,
        subject.inline,
        case.values,
        gradients,
        elementwise=subject.keeps_layout,
    )


def judged(subject: Subject, case: Case, found: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons, or Failed for the first that does not hold."""
    for each in found:
        if not each:
            gradients = any(other.what.startswith("gradient") for other in found)
            raise Failed(f"{case.name}: {each.what}: {each.message}", case, [matching(case, gradients)])
    return list(found)


def matching(case: Case, gradients: bool = True) -> str:
    """The line that raises where the op is not what its reference is."""
    parts = [f"{a.name}={a.name}" if a.keyword_only else a.name for a in case.arguments]
    return f"opsmith.checks.assert_matches(op, {', '.join(parts)}{'' if gradients else ', gradients=False'})"
