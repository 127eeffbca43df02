"""torch.export accepts a module that calls the op; the program gives the same results, also with a dynamic size."""

from __future__ import annotations

import warnings
from typing import Any

from ..calls.export import compared, exported, saved_and_loaded
from ..cases.case import Case
from ..outcome import Failed, first_line
from ..subject import Subject, present
from ._choice import deterministic, made_up, resized, traceable
from ._truth import raising

ORDER = 60


def check(subject: Subject) -> str:
    traceable(subject)
    cases = resized(subject, 2) or [made_up(subject)]
    case, other = cases[0], cases[-1]
    deterministic(subject, case)
    lines = _lines(case, other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with raising(case, lines):
            program = exported(subject, case.values, other.values)
        _same(subject, case, program, lines)
        if len(cases) == 1:
            return "the program gives the same numbers; its sizes are fixed, for the op takes no others"
        free = _takes_other_sizes(subject, case, other, program, lines)
        summary = "the program gives the same numbers" + (
            " for two sizes" if free else "; its size is fixed by the reference"
        )
        if subject.full:
            _decomposed_and_loaded(subject, case, other if free else case, program, lines)
            summary += ", decomposed, saved and loaded too"
    return summary


def _takes_other_sizes(subject: Subject, case: Case, other: Case, program: Any, lines: list[str]) -> bool:
    """Whether it does. Failed where the reference's program would."""
    try:
        program.module()(*present(subject.arguments, other.values))
    except Exception as error:
        if _reference_is_fixed(subject, case, other):
            return False
        message = "a size that was left free is a constant of the program, and of the reference's it is not"
        raise Failed(f"{case.name}, then {other.name}: {message}: {first_line(error)}", case, lines) from None
    _same(subject, other, program, lines, first=case)
    return True


def _reference_is_fixed(subject: Subject, case: Case, other: Case) -> bool:
    try:
        exported(subject, case.values, other.values, subject.reference).module()(
            *present(subject.arguments, other.values)
        )
    except Exception:
        return True
    return False


def _same(subject: Subject, case: Case, program: Any, lines: list[str], first: Case | None = None) -> None:
    with raising(first or case, lines):
        found = compared(subject, case.values, program.module())
    wrong = [each for each in found if not each]
    if wrong:
        raise Failed(f"{case.name}: {wrong[0].what}: {wrong[0].message}", first or case, lines)


def _decomposed_and_loaded(subject: Subject, case: Case, other: Case, program: Any, lines: list[str]) -> None:
    """What a program goes through on its way to where it runs."""
    lines = [*lines[:-1], f"{lines[-1][:-1]}, deployed=True)"]
    with raising(case, lines):
        loaded = saved_and_loaded(program.run_decompositions())
    _same(subject, case, loaded, lines)
    _same(subject, other, loaded, lines, first=case)


def _lines(case: Case, other: Case) -> list[str]:
    names = ", ".join(argument.name for argument in case.arguments)
    if other is case:
        return [f"opsmith.checks.assert_exported_matches(op, {names})"]
    return [f"first = ({names},)", *other.lines, f"opsmith.checks.assert_exported_matches(op, *first, then=({names},))"]
