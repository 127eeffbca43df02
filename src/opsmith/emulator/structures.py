"""The structures of native/interface.h and native/host.h, field by field."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

TENSOR, CONSTANT, DEVICE, SHARED, IGNORED = range(5)
"""RegionKind: what kind of memory a region is."""
IN_ORDER = 2**64 - 1
"""The seed with which blocks and threads run in the order of their numbers."""
PRINTED = -2
"""The status of a launch that has printed output which has not been read."""
ALLOCATED = -2
"""In place of a fault's region: memory that a kernel has allocated."""
MOST_WAITS = 8
VALUE, POINTER, POINTER_TO_POINTERS, RECORD = range(4)
"""ParameterKind. A record may contain an address: a struct, a 64-bit number."""
DONE, STOPPED, REFUSED = range(3)
"""LaunchResult: how a launch ends."""

Int32 = Annotated[int, ctypes.c_int32]
UInt32 = Annotated[int, ctypes.c_uint32]
Int64 = Annotated[int, ctypes.c_int64]
UInt64 = Annotated[int, ctypes.c_uint64]
Text = Annotated[bytes, ctypes.c_char_p]
Struct = TypeVar("Struct", bound=ctypes.Structure)


def structure(kind: type[Struct]) -> type[Struct]:
    """Give a ctypes structure the fields that its annotations declare, in their order."""
    hints = get_type_hints(kind, include_extras=True).items()
    kind._fields_ = [(name, (get_args(hint) or (hint,))[-1]) for name, hint in hints]
    return kind


def array(kind: type[Any], items: Sequence[Any]) -> Any:
    """The structures one after the other in memory; never empty, so that it has an address."""
    return (kind * max(len(items), 1))(*items)


@structure
class Dim(ctypes.Structure):
    x: UInt32
    y: UInt32
    z: UInt32

    @property
    def triple(self) -> tuple[int, int, int]:
        return self.x, self.y, self.z


@structure
class Region(ctypes.Structure):
    begin: UInt64
    end: UInt64
    kind: UInt32
    number: UInt32


@structure
class Place(ctypes.Structure):
    pc: UInt64
    block: Dim
    thread: Dim
    count: UInt32


@structure
class Fault(ctypes.Structure):
    kind: Int32
    is_write: Int32
    pc: UInt64
    address: UInt64
    size: UInt64
    block: Dim
    thread: Dim
    region: Int64
    offset: Int64
    mask: UInt32
    lane: UInt32
    has_other: Int32
    other: Place
    waits: Int32
    wait: Annotated[Sequence[Place], Place * MOST_WAITS]
    detail: Annotated[bytes, ctypes.c_char * 256]


@structure
class Launch(ctypes.Structure):
    entry: UInt64
    arguments: UInt64
    grid: Dim
    block: Dim
    cluster: Dim
    shared_bytes: UInt64
    checks: Int32
    workers: Int32
    seed: UInt64
    seconds: Annotated[float, ctypes.c_double]
    regions: UInt64
    region_count: UInt64
    shared_variables: UInt64
    shared_variable_count: UInt64
    shared_base: UInt64
    fault: UInt64


@structure
class HostParameter(ctypes.Structure):
    address: UInt64
    size: UInt64
    kind: Int32
    type: Text


@structure
class HostTensor(ctypes.Structure):
    begin: UInt64
    end: UInt64
    storage: UInt64
    description: Text
    by_data: Int32


@structure
class HostLaunch(ctypes.Structure):
    name: Text
    kernel: UInt64
    entry: UInt64
    arguments: UInt64
    arguments_begin: UInt64
    arguments_end: UInt64
    first_parameter: Annotated[Sequence[HostParameter], ctypes.POINTER(HostParameter)]
    parameter_count: UInt64
    first_tensor: Annotated[Sequence[HostTensor], ctypes.POINTER(HostTensor)]
    tensor_count: UInt64
    grid: Dim
    block: Dim
    shared_bytes: UInt64
    refusal: Annotated[bytes, ctypes.c_char * 1024]

    @property
    def parameters(self) -> Sequence[HostParameter]:
        return self.first_parameter[: self.parameter_count]

    @property
    def tensors(self) -> Sequence[HostTensor]:
        return self.first_tensor[: self.tensor_count]


Hook: Callable[..., Any] = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(HostLaunch))
