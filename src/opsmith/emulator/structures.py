"""The structures of native/interface.h, field by field."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar

TENSOR, CONSTANT, DEVICE, SHARED, IGNORED = range(5)
IN_ORDER = 2**64 - 1
"""The seed that leaves blocks and threads in the order of their numbers."""
PRINTED = -2
"""What a launch is told as while it has printed what has not been taken."""
NO_RESOURCES = 15
"""The kind of a fault that is the machine's."""

Fields = ClassVar[list[tuple[str, object]]]


class Dim(ctypes.Structure):
    x: int
    y: int
    z: int
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter((self.x, self.y, self.z))


class Region(ctypes.Structure):
    begin: int
    end: int
    kind: int
    number: int
    _fields_ = [
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
    ]


class Place(ctypes.Structure):
    pc: int
    block: Dim
    thread: Dim
    count: int
    _fields_ = [("pc", ctypes.c_uint64), ("block", Dim), ("thread", Dim), ("count", ctypes.c_uint32)]


MOST_WAITS = 8


class Fault(ctypes.Structure):
    kind: int
    is_write: int
    pc: int
    address: int
    size: int
    block: Dim
    thread: Dim
    region: int
    offset: int
    mask: int
    lane: int
    has_other: int
    other: Place
    waits: int
    wait: ctypes.Array[Place]
    words: bytes
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("is_write", ctypes.c_int32),
        ("pc", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("block", Dim),
        ("thread", Dim),
        ("region", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("mask", ctypes.c_uint32),
        ("lane", ctypes.c_uint32),
        ("has_other", ctypes.c_int32),
        ("other", Place),
        ("waits", ctypes.c_int32),
        ("wait", Place * MOST_WAITS),
        ("words", ctypes.c_char * 256),
    ]


class Launch(ctypes.Structure):
    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", Dim),
        ("block", Dim),
        ("shared_bytes", ctypes.c_uint64),
        ("checks", ctypes.c_int32),
        ("workers", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("seconds", ctypes.c_double),
        ("regions", ctypes.c_void_p),
        ("region_count", ctypes.c_uint64),
        ("shared_variables", ctypes.c_void_p),
        ("shared_variable_count", ctypes.c_uint64),
        ("shared_base", ctypes.c_void_p),
        ("fault", ctypes.c_void_p),
    ]


def array(kind: type[Any], items: Sequence[Any]) -> Any:
    """The structures one after the other in memory, which is not empty where there are none."""
    return (kind * max(len(items), 1))(*items)
