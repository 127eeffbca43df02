"""A call as a program of torch.export, compared with the call itself."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.export import Dim

from ...operator.adopted import Adopted
from .. import values as call_values
from ..accuracy.evaluate import evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Comparison, Function, Truth, assert_all
from ..memory import same_bits
from ..subject import Subject

if TYPE_CHECKING:
    from ...operator.op import Op


def assert_exported_matches(op: Op | Adopted, *args: Any, then: Sequence[Any] = (), deployed: bool = False) -> None:
    """Raises AssertionError unless a module that calls the op can be exported, and the program gives what the op does.

    Args:
        args: all arguments in schema order.
        then: arguments of other sizes that the same program must accept.
        deployed: after run_decompositions, and saved to a file and loaded.
    """
    subject = Subject(op)
    program = exported(subject, args, then or args)
    program = saved_and_loaded(program.run_decompositions()) if deployed else program
    found = [each for given in (args, then or args) for each in compared(subject, given, program.module())]
    assert_all(found, f"{op.name} gives different results when exported")


def saved_and_loaded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


class Calling(torch.nn.Module):
    """A call as a module whose inputs are its tensors. Other arguments are constants of the module."""

    def __init__(self, subject: Subject, values: Sequence[Any], function: Function) -> None:
        super().__init__()
        self.arguments, self.values, self.function = subject.arguments, values, function

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        return call_values.listed(self.function(call_values.with_tensors(self.arguments, self.values, tensors)))


def exported(
    subject: Subject, values: Sequence[Any], other: Sequence[Any], function: Function | None = None
) -> torch.export.ExportedProgram:
    """The program of a call, of the op or of another function, with a dynamic size wherever `other` differs."""
    tensors, others = call_values.present(subject.arguments, values), call_values.present(subject.arguments, other)
    free = tuple(
        tuple(Dim.AUTO if one != two else Dim.STATIC for one, two in zip(mine.shape, theirs.shape, strict=True))
        for mine, theirs in zip(tensors, others, strict=True)
    )
    module = Calling(subject, values, function or subject.call)
    return torch.export.export(module, tuple(tensors), dynamic_shapes=(free,), strict=False)


def compared(subject: Subject, values: Sequence[Any], module: torch.nn.Module) -> list[Comparison]:
    """A program's module compared with the op, and where a bit differs, with the reference."""
    arguments = subject.functional_arguments
    mine = evaluate(arguments, lambda given: module(*call_values.present(arguments, given)), values, gradients=False)
    alike = subject.call(values)
    if len(mine) == len(alike) and same_bits([tensor for _, tensor in mine], alike):
        return []
    rounding = rounding_of(subject.op, values, False)
    return Truth(arguments, subject.reference, values, False, rounding).beside(mine)
