"""A capture into a CUDA graph outside torch, to see whether a call can be captured at all.

A capture that fails inside torch.cuda.graph leaves torch's allocator and its random numbers as if it went on, and
what is run later in the process fails with it. The driver's own capture leaves nothing behind.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ...launch.driver import driver
from ..outcome import first_line

GLOBAL = 0  # CU_STREAM_CAPTURE_MODE_GLOBAL, which torch.cuda.graph asks for too


def capture(stream: torch.cuda.Stream, function: Callable[[], Any]) -> tuple[int, str]:
    """Captures `function` on a stream and discards the graph: the number of nodes, and why the capture failed, or
    nothing."""
    begin, end, nodes_of, destroy = _functions()
    handle, graph, count = ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p(), ctypes.c_size_t()
    torch.cuda.synchronize()
    kept: list[Any] = []
    raised = ""
    with torch.cuda.stream(stream):
        driver().check(begin(handle, GLOBAL), "cuStreamBeginCapture")
        try:
            kept.append(function())
        except Exception as error:
            raised = first_line(error)
        finally:
            code = end(handle, ctypes.byref(graph))
    if graph.value:
        nodes_of(graph, None, ctypes.byref(count))
        destroy(graph)
    torch.cuda.synchronize()
    if code and not raised:
        raised = f"{driver().error_text(code)}, and no call of the op says so"
    return count.value, raised


@cache
def _functions() -> tuple[Any, ...]:
    library = ctypes.CDLL("libcuda.so.1")
    pointer = ctypes.c_void_p
    library.cuStreamBeginCapture_v2.argtypes = [pointer, ctypes.c_int]
    library.cuStreamEndCapture.argtypes = [pointer, pointer]
    library.cuGraphGetNodes.argtypes = [pointer, pointer, pointer]
    library.cuGraphDestroy.argtypes = [pointer]
    return library.cuStreamBeginCapture_v2, library.cuStreamEndCapture, library.cuGraphGetNodes, library.cuGraphDestroy
