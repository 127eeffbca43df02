"""Comparison of the op with its reference, as several items need it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..accuracy.evaluate import Named, evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Comparison, NoTruthError, Truth
from ..cases.case import Case
from ..outcome import Failed, ReferenceRaises, Skipped, Uncovered
from ..subject import Subject, listed
from ._choice import arguments_of


def compared(subject: Subject, case: Case, gradients: bool = True, figures: bool = False) -> list[Comparison]:
    """Results, and gradients where they are asked for and there are any. Failed where the op raises. `figures`: torch's
    own error too."""
    gradients = gradients and subject.differentiates(case)
    return truth_of(subject, case, gradients, figures=figures).beside(given(subject, case, gradients))


def truth_of(subject: Subject, case: Case, gradients: bool = True, pick: int | None = None, **options: Any) -> Truth:
    """What the reference gives, of all results or of the one that is picked. `options` are Truth's."""
    with raising(case, [matching(case, gradients)], subject):
        rounding = rounding_of(subject.op, case.values, gradients)

    def reference(values: Sequence[Any]) -> Any:
        returned = subject.inline(values)
        return returned if pick is None else listed(returned)[pick]

    try:
        return Truth(subject.arguments, reference, case.values, gradients, rounding, **options)
    except NoTruthError as error:
        raise Uncovered(str(error)) from error
    except Exception as error:
        raise ReferenceRaises(case, error) from error


def given(subject: Subject, case: Case, gradients: bool = True, line: str = "", **options: Any) -> list[Named]:
    """What the op gives. `line` shows the fault where it raises."""
    with raising(case, [line or matching(case, gradients)]):
        return evaluate(subject.arguments, subject.raw, case.values, gradients=gradients, **options)


@contextlib.contextmanager
def raising(
    case: Case,
    lines: Sequence[str],
    beside: Subject | None = None,
    reference: Callable[[], object] | None = None,
) -> Iterator[None]:
    """Whatever the op raises inside is a failure with arguments and lines that show it; unless the reference raises
    too: called plainly, with the subject `beside`, or in the way that `reference` does it."""
    try:
        yield
    except (Failed, Skipped, NoTruthError):
        raise
    except Exception as error:
        if beside is not None:
            _refuse_where_reference_raises(beside, case)
        if reference is not None:
            try:
                reference()
            except Exception as theirs:
                raise ReferenceRaises(case, theirs) from theirs
        message = str(error).strip()
        raise Failed(f"{case.name}: it raises {type(error).__name__}: {message}", case, lines) from error


def _refuse_where_reference_raises(subject: Subject, case: Case) -> None:
    try:
        evaluate(subject.arguments, subject.inline, case.values, gradients=subject.differentiates(case))
    except Exception as error:
        raise ReferenceRaises(case, error) from error


def judged(case: Case, found: Sequence[Comparison], line: str = "") -> list[Comparison]:
    """The comparisons, or Failed for the first that does not hold."""
    for each in found:
        if not each:
            gradients = any(other.what.startswith("gradient") for other in found)
            raise Failed(f"{case.name}: {each.what}: {each.message}", case, [line or matching(case, gradients)])
    return list(found)


def matching(case: Case, gradients: bool = True, **options: Any) -> str:
    """The line that raises where the op is not what its reference is. `options` are assert_matches'."""
    written = [f"{name}={value!r}" for name, value in options.items()]
    parts = [arguments_of(case), *([] if gradients else ["gradients=False"]), *written]
    return f"opsmith.checks.assert_matches(op, {', '.join(parts)})"


class Worst:
    """The largest errors met, for what an item says when all is well."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[float, float | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, dtype: torch.dtype, found: Comparison) -> None:
        name = str(dtype).removeprefix("torch.")
        ulps, reference = self._found.get(name, (0.0, None))
        known = [each for each in (reference, found.reference_ulps) if each is not None]
        self._found[name] = max(ulps, found.ulps), max(known, default=None)

    def __str__(self) -> str:
        """'float32 2.4 (torch 1.9), float64 3'"""
        return ", ".join(
            f"{dtype} {ulps:.3g}" + ("" if reference is None else f" (torch {reference:.3g})")
            for dtype, (ulps, reference) in self._found.items()
        )
