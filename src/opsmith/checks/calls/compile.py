"""A call through torch.compile, compared with the call itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...operator.adopted import Adopted
from ..accuracy.evaluate import evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Comparison, Truth, assert_all
from ..cases.case import Case
from ..memory import same_bits
from ..subject import Subject
from ..values import listed

if TYPE_CHECKING:
    from ...operator.op import Op

BACKEND = "aot_eager"
"""Traces forward and backward as every backend does, and leaves the operators as they are."""


def assert_compiled_matches(
    op: Op | Adopted, *args: Any, backend: str = BACKEND, gradients: bool = True, **kwargs: Any
) -> None:
    """Raises AssertionError unless the op compiles into one graph that gives what the op does, in every bit or within
    rounding error, with the gradients of its floating inputs."""
    subject = Subject(op)
    values = op.signature.bind_call(args, kwargs)
    form = among_others if backend != BACKEND else lambda called: called
    with fresh_dynamo():
        compiled = torch.compile(form(calling(subject)), backend=backend, fullgraph=True)
        found = compared(subject, values, compiled, gradients, form)
    assert_all(found, f"{op.name} gives different results when compiled")


def calling(subject: Subject, function: Any = None) -> Callable[..., Any]:
    """The call of an op, or of another function, with all arguments in schema order, for dynamo to trace. An in-place
    op changes copies."""
    names = ", ".join(argument.name for argument in subject.arguments)
    text = f"lambda {names}: {Case('', subject.arguments, (), ()).call('_op')}"
    return eval(text, {"_op": subject.op if function is None else function})  # type: ignore[no-any-return]


def among_others(called: Callable[..., Any]) -> Callable[..., Any]:
    """The call between two operators for which a backend generates kernels, and which round nothing."""

    def doubled(*args: Any) -> list[torch.Tensor]:
        halved = [each * 0.5 if isinstance(each, torch.Tensor) and each.is_floating_point() else each for each in args]
        return [each * 2.0 if each.is_floating_point() else each for each in listed(called(*halved))]

    return doubled


def compared(
    subject: Subject,
    values: Sequence[Any],
    compiled: Callable[..., Any],
    gradients: bool,
    form: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda called: called,
) -> list[Comparison]:
    """Empty if every bit is the same. A backend may decompose an operator and round differently: then the comparison is
    with the reference. `form` is the function that was applied to the call before it was compiled."""
    arguments = subject.functional_arguments
    own, reference = form(calling(subject)), form(calling(subject, subject.op.inline))
    mine = evaluate(arguments, lambda given: compiled(*given), values, gradients=gradients)
    alike = evaluate(arguments, lambda given: own(*given), values, gradients=gradients)
    if len(mine) == len(alike) and same_bits([t for _, t in mine], [t for _, t in alike]):
        return []
    rounding = rounding_of(subject.op, values, gradients)
    return Truth(arguments, lambda given: reference(*given), values, gradients, rounding).beside(mine)


@contextlib.contextmanager
def fresh_dynamo() -> Iterator[None]:
    """Clears dynamo's compiled code before and after."""
    torch._dynamo.reset()
    try:
        yield
    finally:
        torch._dynamo.reset()


@contextlib.contextmanager
def compiling_here() -> Iterator[None]:
    """Inside, inductor compiles in this process instead of a pool of processes, one per core."""
    import torch._inductor.config as config

    with config.patch(compile_threads=1):
        yield
