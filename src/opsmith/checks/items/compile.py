"""torch.compile(fullgraph=True) gives the same results, forward and backward, without needless recompilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._triton import has_triton

from ...errors import ToolMissingError
from ...toolchain import find_cxx
from ..calls.compile import BACKEND, among_others, calling, compared, compiling_here, fresh_dynamo
from ..cases.case import Case
from ..outcome import Failed
from ..subject import Subject
from ._cases import arguments_of, generated_case, has_gradients, resized, skip_random, skip_untraceable
from ._compare import failing_on_error, require

CRASHES = True
ORDER = 60
SIZES = 3
NUMBERS = 3
"""Values of a float argument that are tried, in addition to its own."""
WITH_SYMBOLS = 2
"""Graphs for calls that differ in one thing: the first, and one that has a symbol for it."""


def check(subject: Subject) -> str:
    skip_untraceable(subject)
    cases = resized(subject, SIZES) or [generated_case(subject)]
    skip_random(subject, cases[0])
    sizes = _compilations(subject, cases, "sizes")
    # torch makes a constant of any operator's float. A compiled pointwise op has no such float.
    floats = _floats_varied(subject, cases[0]) if subject.keeps_layout else []
    summary = [f"{len(cases)} sizes: {sizes} graphs" if len(cases) > 1 else "1 graph"]
    for name, varied in floats:
        values = f"values of {name}"
        summary.append(f"{NUMBERS + 1} {values}: {_compilations(subject, varied, values)}")
    if subject.full:
        summary.append(_inductor(subject, cases[0]))
    return "; ".join(summary)


def _compilations(subject: Subject, cases: Sequence[Case], what: str) -> int:
    """Calls the compiled op with each case, twice with the first, and compares. Returns the number of graphs."""
    gradients = has_gradients(subject, cases[0])

    def call(case: Case, compiled: Callable[..., Any]) -> None:
        _check_compiled(subject, case, compiled, gradients)

    count = _graphs(calling(subject), [cases[0], *cases], call, fullgraph=True)
    if count <= WITH_SYMBOLS:
        return count
    # More are allowed only if the reference takes as many.
    reference = calling(subject, subject.op.inline)
    allowed = len(cases) > WITH_SYMBOLS and _graphs(reference, cases, lambda case, compiled: compiled(*case.values))
    if count > max(WITH_SYMBOLS, allowed):
        lines = [
            "from torch._dynamo.testing import CompileCounterWithBackend",
            f"counter = CompileCounterWithBackend({BACKEND!r})",
            f"compiled = torch.compile(lambda {arguments_of(cases[0])}: {cases[0].call()}, backend=counter)",
        ]
        for case in cases:
            lines += [*case.lines, f"compiled({arguments_of(case)})"]
        lines.append(f"assert counter.frame_count <= {WITH_SYMBOLS}, counter.frame_count")
        raise Failed(f"{len(cases)} {what} take {count} graphs: one has a symbol for all of them", None, lines)
    return count


def _graphs(
    function: Callable[..., Any],
    cases: Sequence[Case],
    call: Callable[[Case, Callable[..., Any]], object],
    fullgraph: bool = False,
) -> int:
    """The number of graphs that compiled calls take."""
    from torch._dynamo.testing import CompileCounterWithBackend

    with fresh_dynamo():
        counter = CompileCounterWithBackend(BACKEND)
        compiled = torch.compile(function, backend=counter, fullgraph=fullgraph)
        for case in cases:
            call(case, compiled)
        return int(counter.frame_count)


def _floats_varied(subject: Subject, case: Case) -> list[tuple[str, list[Case]]]:
    """For each float argument, calls with other values of it that the reference accepts."""
    found = []
    for argument in subject.arguments:
        if argument.type != "float":
            continue
        own = case[argument.name]
        numbers = [own * (1 + step / 8) + step / 16 for step in range(1, NUMBERS + 1)]
        cases = [case.changed(argument.name, number, repr(number), f"{argument.name}={number}") for number in numbers]
        if all(subject.accepts(each) for each in cases):
            found.append((argument.name, [case, *cases]))
    return found


def _inductor(subject: Subject, case: Case) -> str:
    """Calls the op between operators that inductor compiles, so that inductor's own tensors go in and out."""
    if subject.device == "cuda" and not has_triton():
        return "inductor not tried: it needs Triton"
    if subject.device == "cpu":
        try:
            find_cxx()
        except ToolMissingError as error:
            return f"inductor not tried: {error}"
    with fresh_dynamo(), compiling_here():
        compiled = torch.compile(among_others(calling(subject)), backend="inductor", fullgraph=True)
        _check_compiled(subject, case, compiled, has_gradients(subject, case), "inductor")
    return "inductor too"


def _check_compiled(
    subject: Subject, case: Case, compiled: Callable[..., Any], gradients: bool, backend: str = BACKEND
) -> None:
    options = f"gradients={gradients}, backend={backend!r}"
    lines = [f"opsmith.checks.assert_compiled_matches(op, {arguments_of(case)}, {options})"]
    form = among_others if backend != BACKEND else lambda called: called
    with failing_on_error(case, lines):
        found = compared(subject, case.values, compiled, gradients, form)
    require(case, found, lines)
