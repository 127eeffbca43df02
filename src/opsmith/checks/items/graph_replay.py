"""A CUDA graph of the op, when replayed, computes with the current contents of its inputs, forward and backward."""

from __future__ import annotations

import warnings

import torch

from ...operator.op import Op
from ..accuracy.evaluate import Named, evaluate
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from . import _gpu
from ._capture import capture
from ._choice import arguments_of, outputs_of

ON = ("cuda",)
ORDER = 61


def check(subject: Subject) -> str:
    replayed = 0
    cases = _gpu.writable_cases(subject)
    for choice in _gpu.choices(subject):
        for case in cases:
            for gradients in (False, True) if subject.differentiates(case) else (False,):
                with _gpu.chosen(subject, choice):
                    replayed += _replayed(subject, case, choice, gradients)
    if not replayed:
        raise Skipped("other inputs give the same results, so that none shows what it was computed from")
    return f"{replayed} graphs replayed with other inputs"


def _replayed(subject: Subject, case: Case, choice: str, gradients: bool) -> bool:
    """Whether it was to be seen what the replays computed with."""
    others = _gpu.other_values(case)
    expected = [_gpu.evaluated(subject, each, gradients) for each in (case, others)]
    if _gpu.same(*expected):
        return False
    inputs = case.each_tensor(torch.clone, "{}")
    side, _ = _gpu.side_streams()
    _prepare(subject, inputs, gradients, side)
    nodes, broken = capture(side, lambda: _gpu.evaluated(subject, inputs, gradients))
    where = f"{case.name}{_gpu.by(choice)}: {'forward and backward' if gradients else 'forward'}"
    if broken:
        _, expectable = capture(
            side, lambda: evaluate(subject.arguments, subject.inline, inputs.values, gradients=gradients)
        )
        if expectable:
            raise Skipped(f"its reference cannot be captured in a CUDA graph either: {expectable}")
        message = (
            f"{where} cannot be captured in a CUDA graph, after having run: {broken}. A call that waits for the GPU, "
            "copies to or from the host, or compiles what `prepare` should have, breaks a capture"
        )
        raise Failed(message, case, _gpu.using(choice, _capturing(subject, case, gradients)))
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the graph is empty; that shows in what a replay gives
        with torch.cuda.graph(graph, stream=side):
            found = _gpu.evaluated(subject, inputs, gradients)
    try:
        for values, wanted in ((others, expected[1]), (case, expected[0])):
            _gpu.write(inputs.every_tensor(), values.every_tensor())
            graph.replay()
            torch.cuda.synchronize()
            _judge(subject, values, case, choice, (found, wanted, where, nodes))
    finally:
        graph.reset()
    return True


def _prepare(subject: Subject, case: Case, gradients: bool, side: torch.cuda.Stream) -> None:
    """What the documentation asks for: `prepare` (opsmith), and a few runs on another stream (torch)."""
    if isinstance(subject.op, Op):
        positional, keyword = subject.arranged((case.requiring() if gradients else case).values)
        subject.op.prepare(*positional, **keyword)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            _gpu.evaluated(subject, case, gradients)
    torch.cuda.synchronize()


def _judge(
    subject: Subject, values: Case, case: Case, choice: str, seen: tuple[list[Named], list[Named], str, int]
) -> None:
    found, wanted, where, nodes = seen
    wrong = _gpu.unlike(subject, values, found, wanted)
    if not wrong:
        return
    name, _, difference = wrong.partition(": ")
    why = (
        "something computed earlier was kept on the host, or its work ran on another stream, and was not captured"
        if nodes
        else "nothing of it was captured: it ran on another stream, or was kept from an earlier call"
    )
    message = f"{where}: a replay with other inputs gives a {name} that is not theirs: {why} ({difference})"
    raise Failed(message, case, _gpu.using(choice, _replaying(subject, case, _any_gradient(found))))


def _any_gradient(found: list[Named]) -> bool:
    return any(what.startswith("gradient") for what, _ in found)


def _capturing(subject: Subject, case: Case, gradients: bool) -> list[str]:
    call = outputs_of(case, gradients)
    prepared = [f"op.prepare({arguments_of(case)})"] if isinstance(subject.op, Op) else []
    return [
        call,
        *prepared,
        "torch.cuda.synchronize()",
        "graph = torch.cuda.CUDAGraph()",
        "with torch.cuda.graph(graph):",
        f"    found = {call}",
    ]


def _replaying(subject: Subject, case: Case, gradients: bool) -> list[str]:
    call = f"expected = {outputs_of(case, gradients)}"
    fresh = case.each_tensor(torch.clone, "{}.clone()")
    own = isinstance(subject.op, Op)
    return [
        *_capturing(subject, case, gradients),
        *_gpu.written_otherwise(case),
        "graph.replay()",
        "torch.cuda.synchronize()",
        *(_gpu.using("reference", [call]) if own else [*fresh.lines[len(case.lines) :], call]),
        _gpu.EQUAL,
    ]
