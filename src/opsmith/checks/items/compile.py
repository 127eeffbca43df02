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
from ._choice import arguments_of, deterministic, has_gradients, made_up, resized, traceable
from ._truth import judged, raising

CRASHES = True
ORDER = 60
SIZES = 3
NUMBERS = 3
"""Values of a float argument that are tried, besides its own."""
ONCE_FOR_SYMBOLS = 2
"""Graphs for calls that differ in one thing: the first, and one that has a symbol for it."""


def check(subject: Subject) -> str:
    traceable(subject)
    cases = resized(subject, SIZES) or [made_up(subject)]
    deterministic(subject, cases[0])
    sizes = _compilations(subject, cases, "sizes")
    # Of an operator's float torch makes a constant, whosever it is. A pointwise op has no such float when compiled.
    floats = _floats_varied(subject, cases[0]) if subject.keeps_layout else []
    numbers = {name: _compilations(subject, varied, name) for name, varied in floats}
    summary = [f"{len(cases)} sizes: {sizes} graphs" if len(cases) > 1 else "1 graph"]
    summary += [f"{NUMBERS + 1} values of {name}: {count}" for name, count in numbers.items()]
    if subject.full:
        summary.append(_inductor(subject, cases[0]))
    return "; ".join(summary)


def _compilations(subject: Subject, cases: Sequence[Case], what: str) -> int:
    """Calls the compiled op with each case, twice with the first, and compares. The number of graphs that took."""
    from torch._dynamo.testing import CompileCounterWithBackend

    gradients = has_gradients(subject, cases[0])
    with fresh_dynamo():
        counter = CompileCounterWithBackend(BACKEND)
        compiled = torch.compile(calling(subject), backend=counter, fullgraph=True)
        for case in [cases[0], *cases]:
            _matching(subject, case, compiled, gradients)
        count: int = counter.frame_count
    if count > max(ONCE_FOR_SYMBOLS, len(cases) > ONCE_FOR_SYMBOLS and _graphs_of_reference(subject, cases)):
        lines = [
            "from torch._dynamo.testing import CompileCounterWithBackend",
            f"counter = CompileCounterWithBackend({BACKEND!r})",
            f"compiled = torch.compile(lambda {arguments_of(cases[0])}: {cases[0].call()}, backend=counter)",
        ]
        for case in cases:
            lines += [*case.lines, f"compiled({arguments_of(case)})"]
        lines.append(f"assert counter.frame_count <= {ONCE_FOR_SYMBOLS}, counter.frame_count")
        text = "sizes" if what == "sizes" else f"values of {what}"
        raise Failed(f"{len(cases)} {text} take {count} graphs: one has a symbol for all of them", None, lines)
    return count


def _graphs_of_reference(subject: Subject, cases: Sequence[Case]) -> int:
    """What the same calls of the reference take."""
    from torch._dynamo.testing import CompileCounterWithBackend

    with fresh_dynamo():
        counter = CompileCounterWithBackend(BACKEND)
        compiled = torch.compile(calling(subject, subject.op.inline), backend=counter)
        for case in cases:
            compiled(*case.values)
        return int(counter.frame_count)


def _floats_varied(subject: Subject, case: Case) -> list[tuple[str, list[Case]]]:
    """For each float argument, calls with other values of it that the reference takes."""
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
    """Between operators that inductor compiles: what it hands to the op, and what it gets back, is its own."""
    if subject.device == "cuda" and not has_triton():
        return "inductor not tried: it needs Triton"
    if subject.device == "cpu":
        try:
            find_cxx()
        except ToolMissingError as error:
            return f"inductor not tried: {error}"
    with fresh_dynamo(), compiling_here():
        compiled = torch.compile(among_others(calling(subject)), backend="inductor", fullgraph=True)
        _matching(subject, case, compiled, has_gradients(subject, case), "inductor")
    return "inductor too"


def _matching(
    subject: Subject, case: Case, compiled: Callable[..., Any], gradients: bool, backend: str = BACKEND
) -> None:
    options = [arguments_of(case)]
    options += [] if gradients else ["gradients=False"]
    options += [] if backend == BACKEND else [f"backend={backend!r}"]
    line = f"opsmith.checks.assert_compiled_matches(op, {', '.join(options)})"
    with raising(case, [line]):
        form = among_others if backend != BACKEND else lambda called: called
        found = compared(subject, case.values, compiled, gradients, form)
    judged(case, found, line)
