"""A CUDA graph of the op, when replayed, computes with the current contents of its inputs, forward and backward."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ...launch.driver import driver
from ...operator.op import Op
from ..accuracy.evaluate import Named
from ..cases.case import Case
from ..outcome import Skipped, first_line
from ..subject import Subject
from . import _gpu
from ._compare import same

ON = ("cuda",)
ORDER = 61
CAPTURE_MODE_GLOBAL = 0  # CU_STREAM_CAPTURE_MODE_GLOBAL, which torch.cuda.graph asks for too


def check(subject: Subject) -> str:
    replayed = sum(_gpu.on_every_kernel(subject, check_call))
    if not replayed:
        raise Skipped("other inputs give the same results, so that none shows what it was computed from")
    return f"{replayed} graphs replayed with other inputs"


def check_call(subject: Subject, case: Case) -> int:
    """How many graphs were replayed: of forward, and of forward and backward."""
    directions = (False, True) if subject.differentiates(case) else (False,)
    return sum(_replayed(subject, case, gradients) for gradients in directions)


def _replayed(subject: Subject, case: Case, gradients: bool) -> bool:
    """False if other inputs give the same results."""
    others = _gpu.other_values(case)
    expected = [subject.evaluate(each, gradients) for each in (case, others)]
    if same(*expected):
        return False
    inputs = case.each_tensor(torch.clone, "{}")
    side, _ = _gpu.side_streams()
    _prepare(subject, inputs, gradients, side)
    where = "forward and backward" if gradients else "forward"
    nodes = _require_capture(subject, inputs, gradients, side, where)
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an empty graph, which the results of a replay show
        with torch.cuda.graph(graph, stream=side):
            found = subject.evaluate(inputs, gradients)
    try:
        for values, wanted in ((others, expected[1]), (case, expected[0])):
            _gpu.write(inputs.every_tensor(), values.every_tensor())
            graph.replay()
            torch.cuda.synchronize()
            if message := _wrong_replay(subject, values, found, wanted, nodes):
                raise case.failed(f"{where}: {message}")
    finally:
        graph.reset()
    return True


def _prepare(subject: Subject, case: Case, gradients: bool, side: torch.cuda.Stream) -> None:
    """Does what the documentation asks for: `prepare` (opsmith), and a few runs on another stream (torch)."""
    if isinstance(subject.op, Op):
        positional, keyword = subject.signature.arranged((case.requiring() if gradients else case).values)
        subject.op.prepare(*positional, **keyword)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            subject.evaluate(case, gradients)
    torch.cuda.synchronize()


def _require_capture(subject: Subject, case: Case, gradients: bool, side: torch.cuda.Stream, where: str) -> int:
    """The number of nodes of the graph. Raises Failed if the call cannot be captured, but its reference can."""
    nodes, broken = capture(side, lambda: subject.evaluate(case, gradients))
    if not broken:
        return nodes
    _, expected = capture(side, lambda: subject.evaluate(case, gradients, subject.inline))
    if expected:
        raise Skipped(f"its reference cannot be captured in a CUDA graph either: {expected}")
    raise case.failed(
        f"{where} cannot be captured in a CUDA graph, after having run: {broken}. A call that waits for the GPU, "
        "copies to or from the host, or compiles what `prepare` should have, breaks a capture"
    )


def _wrong_replay(subject: Subject, values: Case, found: list[Named], wanted: list[Named], nodes: int) -> str:
    name, difference = _gpu.difference(subject, values, found, wanted)
    if not name:
        return ""
    why = (
        "something computed earlier was kept on the host, or its work ran on another stream, and was not captured"
        if nodes
        else "nothing of it was captured: it ran on another stream, or was kept from an earlier call"
    )
    return f"a replay with other inputs gives a {name} that is not theirs: {why} ({difference})"


# --- A capture by the driver ------------------------------------------------------------------------------------------
# A capture that fails inside torch.cuda.graph leaves torch's allocator and random number generators in the state of a
# capture, and later work in the process fails. The driver's own capture leaves nothing behind.


def capture(stream: torch.cuda.Stream, function: Callable[[], Any]) -> tuple[int, str]:
    """Captures `function` on a stream and discards the graph. Returns the number of nodes, and why the capture failed,
    or ''."""
    library = ctypes.CDLL("libcuda.so.1")
    handle, graph, count = ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p(), ctypes.c_size_t()
    torch.cuda.synchronize()
    kept: list[Any] = []
    raised = ""
    with torch.cuda.stream(stream):
        driver().check(library.cuStreamBeginCapture_v2(handle, CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture")
        try:
            kept.append(function())
        except Exception as error:
            raised = first_line(error)
        finally:
            code = library.cuStreamEndCapture(handle, ctypes.byref(graph))
    if graph.value:
        library.cuGraphGetNodes(graph, None, ctypes.byref(count))
        library.cuGraphDestroy(graph)
    torch.cuda.synchronize()
    if code and not raised:
        raised = f"{driver().error_text(code)}, and no call of the op reports it"
    return count.value, raised
