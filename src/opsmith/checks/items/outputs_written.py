"""Outputs are written completely, and nothing else is written or read: nothing past them or around the inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...operator.op import Op
from .. import layouts, memory
from ..accuracy.evaluate import evaluate
from ..cases.case import Case
from ..outcome import Failed
from ..subject import Subject
from ._choice import arguments_of, draws_random_numbers, has_gradients, named_tensors, outputs_of, various_cases

ON = ("cpu", "cuda", "emulated")
ZEROS, NANS = memory.BYTES


def check(subject: Subject) -> str:
    cases = various_cases(subject)
    sure = True
    for case in cases:
        gradients = has_gradients(subject, case)
        sure = _under_outputs(subject, case, gradients) and sure
        _around_inputs(subject, case, gradients)
    for case in cases if subject.full else cases[:3]:
        _around_given_outputs(subject, case)
    return f"{len(cases)} calls" + ("" if sure else ", in memory of which some was filled before")


def _under_outputs(subject: Subject, case: Case, gradients: bool) -> bool:
    try:
        return memory.assert_written(_call(subject, case, gradients))
    except AssertionError as found:
        line = f"opsmith.checks.memory.assert_written(lambda: {outputs_of(case, gradients)})"
        raise Failed(f"{case.name}: {found}", case, [line]) from None


def _around_inputs(subject: Subject, case: Case, gradients: bool) -> None:
    first, first_case = _between_bands(subject, case, gradients, ZEROS)
    second, second_case = _between_bands(subject, case, gradients, NANS)
    if memory.same_bits(first, second) or not memory.same_bits(second, _call(subject, second_case, gradients)()):
        return
    lines = [f"first = {outputs_of(case, gradients)}", *second_case.lines[len(case.lines) :]]
    lines.append(f"assert opsmith.checks.memory.same_bits(first, {outputs_of(case, gradients)})")
    raise Failed(f"{case.name}: its outputs change with what lies beside its inputs", first_case, lines)


def _between_bands(subject: Subject, case: Case, gradients: bool, byte: int) -> tuple[list[torch.Tensor | None], Case]:
    """The outputs for inputs that lie in memory full of `byte`, which must stay so."""
    laid = case.each_tensor(lambda tensor: memory.banded(tensor, byte), f"opsmith.checks.memory.banded({{}}, {byte})")
    lines = [outputs_of(case, gradients)]
    found = _call(subject, laid, gradients)()
    if subject.inplace:  # which has been given copies so far
        lines.append(f"op({arguments_of(case)})")
        subject.raw(laid.values)
    for name, _, tensor in named_tensors(laid):
        if not memory.bands_intact(tensor, byte):
            lines.append(f"assert opsmith.checks.memory.bands_intact({name}, {byte})")
            raise Failed(f"{case.name}: it writes into the memory beside {name}", laid, lines)
    return found, laid


def _around_given_outputs(subject: Subject, case: Case) -> None:
    """For `op(..., out=)`."""
    if (
        not isinstance(subject.op, Op)
        or subject.op._families.default.out is None
        or draws_random_numbers(subject, case)
    ):
        return
    results = subject.call(case.values)
    positional, keyword = subject.arranged(case.values)
    for layout in ("offset", "sliced"):
        given = [memory.banded(layouts.LAYOUTS[layout](result), NANS) for result in results]
        subject.op(*positional, **keyword, out=given if len(given) > 1 else given[0])
        written = memory.same_bits(results, given)
        if written and all(memory.bands_intact(each, NANS) for each in given):
            continue
        made = f"opsmith.checks.memory.banded(opsmith.checks.layouts.{layout}(torch.zeros_like(each)), {NANS})"
        lines = [
            f"results = {case.call()}",
            f"given = [{made} for each in {'results' if len(results) > 1 else '[results]'}]",
            f"op({arguments_of(case)}, out={'given' if len(results) > 1 else 'given[0]'})",
            f"assert opsmith.checks.memory.same_bits({'results' if len(results) > 1 else '[results]'}, given)",
            f"assert all(opsmith.checks.memory.bands_intact(each, {NANS}) for each in given)",
        ]
        what = "writes beside a tensor given as out=" if written else "out= gets other numbers than it returns"
        raise Failed(f"{case.name}: {what}, which is {layout}", case, lines)


def _call(subject: Subject, case: Case, gradients: bool) -> Callable[[], list[torch.Tensor | None]]:
    def called() -> list[Any]:
        return [tensor for _, tensor in evaluate(subject.arguments, subject.raw, case.values, gradients=gradients)]

    return called
