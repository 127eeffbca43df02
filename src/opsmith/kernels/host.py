"""What C++ host code asks of opsmith: kernels of a CudaSource by their names, with what their parameters take.

The structures are those of include/opsmith/host.h. C++ keeps pointers to what it has been given, so nothing of it is
freed here.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..errors import ReferenceRunsWarning, ToolMissingError
from ..errors.base import warn
from ..toolchain.shipped import built_elsewhere
from .configuration import LaunchConfiguration

if TYPE_CHECKING:
    from .cuda_source.parameters import Parameter
    from .cuda_source.plan import Plan
    from .cuda_source.source import CudaSource

SET_HOST = "opsmith_set_host"
"""The function of a library of host code that takes a HostStructure."""
FOUND, FAILED, DECLINED, NOTHING = range(4)
INTEGER, NATURAL, BOOLEAN, FLOATING, HALF, BFLOAT16, POINTER, OTHER = range(8)

_text, _address, _size, _signed, _code = (
    ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32
)  # fmt: skip


class ParameterInfo(ctypes.Structure):
    _fields_ = (
        ("name", _text), ("type", _text), ("size", _size), ("kind", _code), ("element", _code),
        ("element_size", _size), ("alignment", _size), ("is_read_only", _code),
    )  # fmt: skip


class KernelInfo(ctypes.Structure):
    _fields_ = (
        ("declared", _text), ("function", _address), ("parameters", ctypes.POINTER(ParameterInfo)), ("count", _size),
        ("max_threads", _signed), ("static_shared", _signed),
    )  # fmt: skip


class GpuInfo(ctypes.Structure):
    _fields_ = (("multiprocessors", _signed), ("shared_bytes", _signed), ("architecture", _signed))


_Find: Callable[..., Any] = ctypes.CFUNCTYPE(
    _code, _address, _text, _code, ctypes.POINTER(ctypes.POINTER(KernelInfo)), _address, _size
)
_Allow: Callable[..., Any] = ctypes.CFUNCTYPE(_code, _address, _text, _code, _signed, _signed, _address, _size)
_Gpu: Callable[..., Any] = ctypes.CFUNCTYPE(None, _address, ctypes.POINTER(GpuInfo))
_Declined: Callable[..., Any] = ctypes.CFUNCTYPE(None)


_of_host: Any = (("context", _address), ("find", _Find), ("allow", _Allow), ("gpu", _Gpu), ("declined", _Declined))


class HostStructure(ctypes.Structure):
    _fields_ = _of_host


_kept: list[Any] = []


def attach(library: ctypes.CDLL, source: CudaSource, label: str, module: str) -> None:
    """From now on the library's host code launches kernels of a source, on GPUs. `label`: the library in messages;
    `module`: the one that declares it."""

    def find(name: str, index: int) -> KernelInfo:
        with source._lock:
            source._require_instance(source[name].name)
            function, _ = source._function(source[name].name, index)
            function.allow_declared_cluster()
        return described(function.plan, function.handle, function.max_threads, function.shared_bytes)

    def allow(name: str, index: int, threads: int, shared: int) -> None:
        with source._lock:
            function, _ = source._function(source[name].name, index)
            function.allow(LaunchConfiguration((1, 1, 1), (threads, 1, 1), shared))

    set_host(library, _finding(find, label, module), _allowing(allow))


def set_host(library: ctypes.CDLL, find: Any, allow: Any = None, gpu: Callable[[], Any] | None = None) -> HostStructure:
    """Gives a library of host code what it asks for."""
    host = HostStructure(None, find, allow or _Allow(), _gpu_of(gpu) if gpu else _Gpu(), _Declined())
    _kept.append(host)
    getattr(library, SET_HOST)(ctypes.byref(host))
    return host


def finding(find: Callable[[str], KernelInfo | None], failed: Callable[[BaseException], None]) -> Any:
    """A function of `HostStructure.find`; `failed` is given the error."""

    @_Find
    def found(context: int, name: bytes, index: int, place: Any, message: int, capacity: int) -> int:
        try:
            info = find(name.decode())
        except BaseException as error:
            failed(error)
            return FAILED
        if info is None:
            return NOTHING
        place[0] = ctypes.pointer(info)
        return FOUND

    return found


def _finding(find: Callable[[str, int], KernelInfo], label: str, module: str) -> Any:
    @_Find
    def found(context: int, name: bytes, index: int, place: Any, message: int, capacity: int) -> int:
        try:
            place[0] = ctypes.pointer(find(name.decode(), index))
        except ToolMissingError as error:
            _write(message, capacity, error)
            _warn(label, module, error)
            return DECLINED
        except BaseException as error:
            _write(message, capacity, error)
            return FAILED
        return FOUND

    return found


def _allowing(allow: Callable[[str, int, int, int], None]) -> Any:
    @_Allow
    def allowed(context: int, name: bytes, index: int, threads: int, shared: int, message: int, capacity: int) -> int:
        try:
            allow(name.decode(), index, threads, shared)
        except BaseException as error:
            _write(message, capacity, error)
            return FAILED
        return FOUND

    return allowed


def _gpu_of(gpu: Callable[[], Any]) -> Any:
    @_Gpu
    def given(context: int, place: Any) -> None:
        found = gpu()
        architecture = int("".join(filter(str.isdigit, found.arch)))
        place[0] = GpuInfo(found.multiprocessors, found.shared_bytes, architecture)

    return given


def _write(message: int, capacity: int, error: BaseException) -> None:
    """The text of an error, cut where it is too long, with a zero after it."""
    text = (str(error) or type(error).__name__).encode()[: capacity - 1]
    ctypes.memmove(message, text + b"\0", len(text) + 1)


_warned: set[str] = set()


def _warn(label: str, module: str, error: ToolMissingError) -> None:
    if label not in _warned:
        _warned.add(label)
        warn(ReferenceRunsWarning("cuda", error, label, "", *built_elsewhere(module)))


# --- what a kernel takes ----------------------------------------------------------------------------------------------


def described(plan: Plan, function: int = 0, max_threads: int = 0, static_shared: int = 0) -> KernelInfo:
    """A kernel with its parameters, for C++."""
    rows = [_parameter(each) for each in plan.parameters]
    parameters = (ParameterInfo * max(len(rows), 1))(*rows)
    info = KernelInfo(plan.declared().encode(), function, parameters, len(rows), max_threads, static_shared)
    _kept.extend((parameters, info))
    return info


def parameter_row(given: Parameter) -> tuple[str, str, int, int, int, int, int, int]:
    """The fields of a ParameterInfo."""
    from .cuda_source.parameters import BFloat16, Flag, Float, Integer, Pointer

    kind = element = OTHER
    element_size, alignment, read_only = 0, 1, 0
    if isinstance(given, Pointer):
        kind, alignment = POINTER, given.alignment
        read_only = int(re.search(r"const ?(?:\*|\(\*\))", given.type.name) is not None)
        if given.element.endswith("*"):
            element, element_size = POINTER, 8
        elif given.dtypes and (known := _ELEMENTS.get(given.dtypes[0])) is not None:
            element, element_size = known, given.dtypes[0].itemsize
    elif isinstance(given, BFloat16):
        kind = BFLOAT16
    elif isinstance(given, Flag):
        kind = BOOLEAN
    elif isinstance(given, Integer):
        kind = INTEGER if given.format.islower() else NATURAL
    elif isinstance(given, Float):
        kind = HALF if given.format == "e" else FLOATING
    name, type_name = given.place.name, given.place.type_name
    return name, type_name, given.type.size, kind, element, element_size, alignment, read_only


def _parameter(given: Parameter) -> ParameterInfo:
    name, type_name, *rest = parameter_row(given)
    return ParameterInfo(name.encode(), type_name.encode(), *rest)


_ELEMENTS = {
    **dict.fromkeys((torch.int8, torch.int16, torch.int32, torch.int64), INTEGER),
    **dict.fromkeys((torch.uint8, torch.uint16, torch.uint32, torch.uint64), NATURAL),
    **dict.fromkeys((torch.float32, torch.float64), FLOATING),
    torch.bool: BOOLEAN,
    torch.float16: HALF,
    torch.bfloat16: BFLOAT16,
}
"""Complex numbers, eight-bit floats and structs are not distinguished."""
