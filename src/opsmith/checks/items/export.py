"""torch.export accepts a module that calls the op; the program gives the same results, also with a dynamic size."""

from __future__ import annotations

import warnings
from typing import Any

from ..calls.export import compared, exported, saved_and_loaded
from ..cases.case import Case
from ..outcome import Failed, first_line
from ..subject import Subject, present
from ._cases import generated_case, resized, skip_random, skip_untraceable
from ._compare import failing_on_error, require

ORDER = 60


def check(subject: Subject) -> str:
    skip_untraceable(subject)
    cases = resized(subject, 2) or [generated_case(subject)]
    case, other = cases[0], cases[-1]
    skip_random(subject, case)
    lines = _lines(case, other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with failing_on_error(case, lines):
            program = exported(subject, case.values, other.values)
        _check_program(subject, case, case, program, lines)
        if len(cases) == 1:
            return "the program gives the same numbers; its sizes are fixed, for the op takes no others"
        free = _accepts(subject, case, other, program, lines)
        if free:
            _check_program(subject, case, other, program, lines)
        summary = "the program gives the same numbers"
        summary += " for two sizes" if free else "; its size is fixed by the reference"
        if subject.full:
            deployed = [*lines[:-1], f"{lines[-1][:-1]}, deployed=True)"]
            with failing_on_error(case, deployed):
                loaded = saved_and_loaded(program.run_decompositions())
            for each in (case, other) if free else (case,):
                _check_program(subject, case, each, loaded, deployed)
            summary += ", decomposed, saved and loaded too"
    return summary


def _accepts(subject: Subject, case: Case, other: Case, program: Any, lines: list[str]) -> bool:
    """Whether the program accepts another size. Raises Failed if only the reference's program does."""
    values = present(subject.arguments, other.values)
    try:
        program.module()(*values)
    except Exception as error:
        try:
            exported(subject, case.values, other.values, subject.reference).module()(*values)
        except Exception:
            return False
        message = "a size that was left free is a constant of the program, and of the reference's it is not"
        raise Failed(f"{case.name}, then {other.name}: {message}: {first_line(error)}", case, lines) from None
    return True


def _check_program(subject: Subject, first: Case, case: Case, program: Any, lines: list[str]) -> None:
    """Compares the program on a case with the op. The lines start from the first case."""
    with failing_on_error(first, lines):
        found = compared(subject, case.values, program.module())
    require(first.named(case.name), found, lines)


def _lines(case: Case, other: Case) -> list[str]:
    names = ", ".join(argument.name for argument in case.arguments)
    if other is case:
        return [f"opsmith.checks.assert_exported_matches(op, {names})"]
    return [f"first = ({names},)", *other.lines, f"opsmith.checks.assert_exported_matches(op, *first, then=({names},))"]
