"""Waits for a launch to end: meanwhile what its kernels print appears, and Ctrl-C ends it."""

from __future__ import annotations

import ctypes
import functools

from .library import runtime
from .structures import PRINTED, Launch

_SECONDS = 0.05
"""How long what is printed, and Ctrl-C, may have to wait."""


def run(launch: Launch) -> int:
    """The kind of the fault that the launch ended in; 0 if it has none."""
    native = _native()
    place = ctypes.c_void_p()
    try:
        kind: int = native.opsmith_begin(ctypes.byref(launch), ctypes.byref(place), _SECONDS)
        while kind < 0:
            if kind == PRINTED:
                size = ctypes.c_uint64()
                text = ctypes.string_at(native.opsmith_printed(place, ctypes.byref(size)), size.value)
                print(text.decode(errors="replace"), end="")
            kind = native.opsmith_await(ctypes.byref(place), _SECONDS)
    except BaseException:
        native.opsmith_stop(ctypes.byref(place))  # its workers must not go on with memory that is given up
        raise
    return kind


@functools.cache
def _native() -> ctypes.CDLL:
    native = runtime()
    native.opsmith_begin.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double)
    native.opsmith_await.argtypes = (ctypes.c_void_p, ctypes.c_double)
    native.opsmith_printed.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    native.opsmith_printed.restype = ctypes.c_void_p
    return native
