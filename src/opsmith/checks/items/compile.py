"""torch.compile(fullgraph=True) gives the same results, forward and backward, without needless recompilation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._triton import has_triton

from ...errors import ToolMissingError
from ...toolchain import find_cxx
from ..accuracy.evaluate import Named, evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Truth
from ..cases.case import Case
from ..outcome import Failed
from ..subject import Subject, listed
from ._cases import arguments_of, generated_case, has_gradients, resized, skip_random, skip_untraceable
from ._compare import failing_on_error, require, same

CRASHES = True
ORDER = 60
BACKEND = "aot_eager"
"""Traces forward and backward as every backend does, and leaves the operators as they are."""
SIZES = 3
NUMBERS = 3
"""Values of a float argument that are tried, in addition to its own."""
WITH_SYMBOLS = 2
"""Graphs for calls that differ in one thing: the first, and one that has a symbol for it."""

Call = Callable[..., Any]


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


def check_call(subject: Subject, case: Case) -> None:
    _compilations(subject, [case], "sizes")
    if subject.full:
        _inductor(subject, case)


def _compilations(subject: Subject, cases: Sequence[Case], what: str) -> int:
    """Calls the compiled op with each case, twice with the first, and compares. Returns the number of graphs."""
    gradients = has_gradients(subject, cases[0])

    def call(case: Case, compiled: Call) -> None:
        _check_compiled(subject, case, compiled, gradients, _calling)

    count = _graphs(_calling(subject, subject.op), [cases[0], *cases], call, fullgraph=True)
    if count <= WITH_SYMBOLS:
        return count
    # More are allowed only if the reference takes as many.
    reference = _calling(subject, subject.op.inline)
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
    function: Call, cases: Sequence[Case], call: Callable[[Case, Call], object], fullgraph: bool = False
) -> int:
    """The number of graphs that compiled calls take."""
    from torch._dynamo.testing import CompileCounterWithBackend

    with _fresh_dynamo():
        counter = CompileCounterWithBackend(BACKEND)
        compiled = torch.compile(function, backend=counter, fullgraph=fullgraph)
        for case in cases:
            call(case, compiled)
        return int(counter.frame_count)


def _floats_varied(subject: Subject, case: Case) -> list[tuple[str, list[Case]]]:
    """For each float argument, calls with other values of it that the reference accepts."""
    found = []
    for argument, own in zip(case.arguments, case.values, strict=True):
        if argument.type != "float":
            continue
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
    with _fresh_dynamo(), compiling_here():
        compiled = torch.compile(_among_others(subject, subject.op), backend="inductor", fullgraph=True)
        _check_compiled(subject, case, compiled, has_gradients(subject, case), _among_others)
    return "inductor too"


def _check_compiled(
    subject: Subject, case: Case, compiled: Call, gradients: bool, form: Callable[[Subject, Call], Call]
) -> None:
    """Compares compiled calls with those of the same form that are not compiled. A backend may decompose an operator
    and round differently: where a bit differs, the reference decides."""

    def evaluated(function: Call) -> list[Named]:
        return evaluate(subject.functional_arguments, lambda given: function(*given), case.values, gradients=gradients)

    with failing_on_error(case):
        mine, alike = evaluated(compiled), evaluated(form(subject, subject.op))
        if same(mine, alike):
            return
        reference, rounding = form(subject, subject.op.inline), rounding_of(subject.op, case.values, gradients)
        truth = Truth(subject.functional_arguments, lambda given: reference(*given), case.values, gradients, rounding)
        found = truth.beside(mine)
    require(case, found)


def _calling(subject: Subject, function: Call) -> Call:
    """The call of the op, or of its reference, with all arguments in schema order, for dynamo to trace. An in-place op
    changes copies."""
    names = ", ".join(argument.name for argument in subject.arguments)
    text = f"lambda {names}: {Case('', subject.arguments, (), ()).call('_op')}"
    return eval(text, {"_op": function})  # type: ignore[no-any-return]


def _among_others(subject: Subject, function: Call) -> Call:
    """The call between two operators for which a backend generates kernels, and which round nothing."""
    called = _calling(subject, function)

    def doubled(*args: Any) -> list[torch.Tensor]:
        halved = [each * 0.5 if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in args]
        return [each * 2.0 if each.is_floating_point() else each for each in listed(called(*halved))]

    return doubled


@contextlib.contextmanager
def _fresh_dynamo() -> Iterator[None]:
    """Clears dynamo's compiled code before and after."""
    torch._dynamo.reset()
    try:
        yield
    finally:
        torch._dynamo.reset()


def compiling_here() -> Any:
    """Inside, inductor compiles in this process instead of a pool of processes, one per core."""
    import torch._inductor.config as config

    return config.patch(compile_threads=1)
