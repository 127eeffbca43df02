"""A call as a program of torch.export, compared with the call itself."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.export import Dim

from ...operator.adopted import Adopted
from ...reference.signature import flatten, unflatten
from ..accuracy.evaluate import evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Comparison, Function, Truth, assert_all
from ..memory import same_bits
from ..subject import Subject, listed, present

if TYPE_CHECKING:
    from ...operator.op import Op


def assert_exported_matches(op: Op | Adopted, *args: Any, then: Sequence[Any] = (), deployed: bool = False) -> None:
    """Raises AssertionError unless a module that calls the op can be exported, and the program gives what the op does.

    Args:
        args: all of them, in the order of the schema.
        then: arguments of other sizes that the same program must take too.
        deployed: after run_decompositions, and through a file.
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
    """A call as a module whose inputs are its tensors. Other arguments are part of it, and which tensors are absent."""

    def __init__(self, subject: Subject, values: Sequence[Any], function: Function) -> None:
        super().__init__()
        self.arguments, self.values, self.function = subject.arguments, values, function

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        present = iter(tensors)
        flat = [None if tensor is None else next(present) for tensor in flatten(self.arguments, self.values)]
        return listed(self.function(unflatten(self.arguments, self.values, flat)))


def exported(
    subject: Subject, values: Sequence[Any], other: Sequence[Any], function: Function | None = None
) -> torch.export.ExportedProgram:
    """The program of a call, of the op or of another function, with every size free in which `other` differs."""
    tensors, others = present(subject.arguments, values), present(subject.arguments, other)
    free = tuple(
        tuple(Dim.AUTO if one != two else Dim.STATIC for one, two in zip(mine.shape, theirs.shape, strict=True))
        for mine, theirs in zip(tensors, others, strict=True)
    )
    module = Calling(subject, values, function or subject.call)
    return torch.export.export(module, tuple(tensors), dynamic_shapes=(free,), strict=False)


def compared(subject: Subject, values: Sequence[Any], module: torch.nn.Module) -> list[Comparison]:
    """What a program's module gives beside the op; beside the reference where a bit is different."""
    arguments = subject.functional_arguments
    mine = evaluate(arguments, lambda given: module(*present(arguments, given)), values, gradients=False)
    alike = subject.call(values)
    if len(mine) == len(alike) and same_bits([tensor for _, tensor in mine], alike):
        return []
    rounding = rounding_of(subject.op, values, False)
    return Truth(arguments, subject.reference, values, False, rounding).beside(mine)
