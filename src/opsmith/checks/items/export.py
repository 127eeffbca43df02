"""torch.export accepts a module that calls the op; the program gives the same results, also with a dynamic size."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from .. import values as call_values
from ..accuracy.evaluate import evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Function, Truth
from ..cases.case import Case
from ..memory import same_bits
from ..outcome import Failed, first_line
from ..subject import Subject, listed, present
from ._cases import generated_case, resized, skip_random, skip_untraceable
from ._compare import failing_on_error, require

ORDER = 60


def check(subject: Subject) -> str:
    skip_untraceable(subject)
    cases = resized(subject, 2) or [generated_case(subject)]
    skip_random(subject, cases[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _check_program(subject, cases)


def _check_program(subject: Subject, cases: list[Case]) -> str:
    """Exports the first call, with a dynamic size wherever the last one differs."""
    case, other = cases[0], cases[-1]
    with failing_on_error(case):
        program = _exported(subject, case, other, subject.call)
    _check_results(subject, case, program)
    if len(cases) == 1:
        return "the program gives the same numbers; its sizes are fixed, because the op takes no others"
    free = _accepts(subject, case, other, program)
    if free:
        _check_results(subject, other, program)
    summary = "the program gives the same numbers" + (
        " for two sizes" if free else "; its size is fixed by the reference"
    )
    if not subject.full:
        return summary
    with failing_on_error(case):
        file = io.BytesIO()
        torch.export.save(program.run_decompositions(), file)
        file.seek(0)
        loaded = torch.export.load(file)
    for each in (case, other) if free else (case,):
        _check_results(subject, each, loaded)
    return f"{summary}, decomposed, saved and loaded too"


def _accepts(subject: Subject, case: Case, other: Case, program: ExportedProgram) -> bool:
    """Whether the program accepts another size. Raises Failed if only the reference's program does."""
    values = present(subject.arguments, other.values)
    try:
        program.module()(*values)
    except Exception as error:
        try:
            _exported(subject, case, other, subject.reference).module()(*values)
        except Exception:
            return False
        message = "a size that was left free is a constant of the program, and of the reference's it is not"
        raise Failed(f"{case.name}, then {other.name}: {message}: {first_line(error)}", case) from None
    return True


def _check_results(subject: Subject, case: Case, program: ExportedProgram) -> None:
    """Compares the program with the op, and where a bit differs, with the reference."""
    arguments, module = subject.functional_arguments, program.module()
    with failing_on_error(case):
        mine = evaluate(arguments, lambda given: module(*present(arguments, given)), case.values, gradients=False)
        alike = subject.call(case.values)
        if len(mine) == len(alike) and same_bits([tensor for _, tensor in mine], alike):
            return
        rounding = rounding_of(subject.op, case.values, False)
        found = Truth(arguments, subject.reference, case.values, False, rounding).beside(mine)
    require(case, found)


class _Calling(torch.nn.Module):
    """A call as a module whose inputs are its tensors. Other arguments are constants of the module."""

    def __init__(self, subject: Subject, values: Sequence[Any], function: Function) -> None:
        super().__init__()
        self.arguments, self.values, self.function = subject.arguments, values, function

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        return listed(self.function(call_values.with_tensors(self.arguments, self.values, tensors)))


def _exported(subject: Subject, case: Case, other: Case, function: Function) -> ExportedProgram:
    """The program of a call of the op or its reference, with a dynamic size wherever `other` differs."""
    tensors = case.every_tensor()
    free = tuple(
        tuple(Dim.AUTO if one != two else Dim.STATIC for one, two in zip(mine.shape, theirs.shape, strict=True))
        for mine, theirs in zip(tensors, other.every_tensor(), strict=True)
    )
    module = _Calling(subject, case.values, function)
    return torch.export.export(module, tuple(tensors), dynamic_shapes=(free,), strict=False)
