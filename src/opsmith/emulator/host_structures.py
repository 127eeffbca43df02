"""The structures of native/host.h, field by field."""

from __future__ import annotations

import ctypes

from .structures import Dim

VALUE, POINTER, POINTER_TO_POINTERS, RECORD = range(4)
"""Kinds of parameters. A record is what may have an address in it: a struct, a number of 64 bits."""
DONE, STOPPED, REFUSED = range(3)
"""How a launch ends."""


class HostParameter(ctypes.Structure):
    address: int
    size: int
    kind: int
    type: bytes
    _fields_ = [
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("kind", ctypes.c_int32),
        ("type", ctypes.c_char_p),
    ]


class HostTensor(ctypes.Structure):
    begin: int
    end: int
    storage: int
    told: bytes
    by_data: int
    _fields_ = [
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("storage", ctypes.c_uint64),
        ("told", ctypes.c_char_p),
        ("by_data", ctypes.c_int32),
    ]


class HostLaunch(ctypes.Structure):
    kernel: int
    entry: int
    arguments: int
    arguments_begin: int
    arguments_end: int
    parameter_count: int
    tensor_count: int
    grid: Dim
    block: Dim
    shared_bytes: int
    refusal: bytes
    _fields_ = [
        ("kernel", ctypes.c_uint64),
        ("entry", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64),
        ("arguments_begin", ctypes.c_uint64),
        ("arguments_end", ctypes.c_uint64),
        ("_parameters", ctypes.POINTER(HostParameter)),
        ("parameter_count", ctypes.c_uint64),
        ("_tensors", ctypes.POINTER(HostTensor)),
        ("tensor_count", ctypes.c_uint64),
        ("grid", Dim),
        ("block", Dim),
        ("shared_bytes", ctypes.c_uint64),
        ("refusal", ctypes.c_char * 1024),
    ]

    @property
    def parameters(self) -> list[HostParameter]:
        return [self._parameters[number] for number in range(self.parameter_count)]

    @property
    def tensors(self) -> list[HostTensor]:
        return [self._tensors[number] for number in range(self.tensor_count)]


Hook = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(HostLaunch))
