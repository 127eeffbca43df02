"""A capture into a CUDA graph that torch does not know of, to see whether a call can be captured at all.

A capture that fails inside of torch.cuda.graph leaves torch's allocator and its random numbers as if it went on, and
what is run later in the process fails with it. The driver's own capture leaves nothing behind.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ...launch.driver import driver

GLOBAL = 0  # CU_STREAM_CAPTURE_MODE_GLOBAL, which torch.cuda.graph asks for too


def capture(stream: torch.cuda.Stream, function: Callable[[], Any]) -> tuple[int, str]:
    """What `function` does, captured on a stream and thrown away: the number of nodes, and what broke the capture in
    words, or nothing."""
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
            raised = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        finally:
            code = end(handle, ctypes.byref(graph))
    if graph.value:
        nodes_of(graph, None, ctypes.byref(count))
        destroy(graph)
    torch.cuda.synchronize()
    if code and not raised:
        raised = f"{driver().words(code)}, and no call of the op says so"
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
