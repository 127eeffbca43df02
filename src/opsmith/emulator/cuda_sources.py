"""cu.name[grid, block](...) inside `emulate`: the kernels of a CudaSource on CPU tensors."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from ..errors import EmulationError
from ..kernels.configuration import LaunchConfiguration
from ..kernels.cuda_source import constants as values
from ..kernels.cuda_source.build import refusal
from ..kernels.cuda_source.parameters import Pointer
from ..kernels.cuda_source.plan import Plan
from ..kernels.emulation import state
from .assembly import macros
from .building import Source, compile_library
from .launching import launch
from .library import Library
from .memory import Piece, piece

if TYPE_CHECKING:
    from ..kernels.cuda_source.launch import Launch
    from ..kernels.cuda_source.origin import Snapshot
    from ..kernels.cuda_source.source import CudaSource

_CPU = -1  # torch's index of the CPU
_POINTER = struct.Struct("<Q")
_UNKNOWN = re.compile(r"'(?:[\w:]*::)?(\w+)' (?:was not declared|has not been declared|is not a member)")

_libraries: dict[tuple[str, str | None, bool], Library] = {}
_using_constants: dict[Path, threading.RLock] = {}
_lock = threading.Lock()


class _Kernel(NamedTuple):
    """What every launch of a kernel needs, for one state of its source's files."""

    snapshot: Snapshot
    library: Library
    plan: Plan
    entry: int
    pointers: Sequence[int]  # their offsets in a launch's frame


def run(chosen: Launch, args: Sequence[Any]) -> None:
    """Run a launch, checked against the kernel's signature as on a GPU."""
    source, name, settings = chosen.kernel.source, chosen.kernel.name, state.settings
    _, library, plan, entry, pointers = _kernel(source, name, settings.checks)
    for value in args:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise EmulationError(name, f"it was given a tensor on {value.device}; emulation needs CPU tensors")
    frame = plan.pack(args, _CPU)
    buffer, addresses = frame[0], frame[1]
    pieces: list[Piece] = []
    if settings.checks:
        _refuse_hidden_addresses(plan, args)
        pieces = [
            piece(each.place.name or f"argument {number + 1}", value)
            for number, (each, value) in enumerate(zip(plan.parameters, args, strict=True))
            if isinstance(value, torch.Tensor)
        ]

    def relocate(moved: Callable[[int], int]) -> None:
        for offset in pointers:
            (address,) = _POINTER.unpack_from(buffer, offset)
            _POINTER.pack_into(buffer, offset, moved(address))

    try:
        with _with_constants(source, library):
            launch(name, library, entry, chosen.configuration, addresses, pieces, relocate, settings)
    finally:
        plan.frames.append(frame)


def plan_of(source: CudaSource, name: str) -> Plan:
    """What a kernel takes, for a launch of it by C++."""
    source._require_instance(source[name].name)
    return _kernel(source, source[name].name, state.settings.checks).plan


def run_by_name(
    source: CudaSource,
    name: str,
    configuration: LaunchConfiguration,
    arguments: int,
    pieces: Callable[[Library], Sequence[Piece]],
    relocate: Callable[[Callable[[int], int]], None],
) -> None:
    """Run a launch by C++, whose arguments are checked and lie where `arguments` leads. `pieces`: the memory that the
    pointers among them lead to."""
    name = source[name].name
    _, library, _, entry, _ = _kernel(source, name, state.settings.checks)
    with _with_constants(source, library):
        launch(name, library, entry, configuration, arguments, pieces(library), relocate, state.settings)


def _kernel(source: CudaSource, name: str, checks: bool) -> _Kernel:
    kernels: dict[tuple[str, bool], _Kernel] = source.__dict__.setdefault("_emulated_kernels", {})
    snapshot = source._current()
    known = kernels.get((name, checks))
    if known is not None and known.snapshot is snapshot:
        return known
    library = _library(source, snapshot, name, checks)
    if (message := library.refusals.get(name)) is not None:
        raise refusal(name, _as_nvrtc(message, source, name), snapshot)
    plan = Plan(name, library.types(name), snapshot)
    pointers = [at for each, at in zip(plan.parameters, plan.offsets, strict=True) if isinstance(each, Pointer)]
    kernels[name, checks] = made = _Kernel(snapshot, library, plan, library.entry(name), pointers)
    return made


def set_constant(source: CudaSource, name: str, value: Any) -> None:
    """Set a __constant__ variable for later launches."""
    snapshot = source._current()
    library = _library(source, snapshot, None, state.settings.checks)
    if name not in library.constants:
        raise values.not_declared(snapshot, name, library.constants)
    _, variable = library.constants[name]
    _constants(source)[name] = values.held(snapshot, name, variable, value, None).data


def _constants(source: CudaSource) -> dict[str, bytes]:
    """The values that a source's constants were set to. Each source has its own, as on a GPU, also where two are
    equal."""
    found: dict[str, bytes] = source.__dict__.setdefault("_emulated_constants", {})
    return found


@contextlib.contextmanager
def _with_constants(source: CudaSource, library: Library) -> Iterator[None]:
    """Inside, the library's constants have the source's values: launches of another source of the same text wait."""
    if not library.constants:
        yield
        return
    with _lock:
        using = _using_constants.setdefault(library.path, threading.RLock())
    with using:
        for name, (address, variable) in library.constants.items():
            data = _constants(source).get(name, b"")
            data = data if len(data) == variable.size else library.initial[name]
            if ctypes.string_at(address, len(data)) != data:
                ctypes.memmove(address, data, len(data))
        yield


def _refuse_hidden_addresses(plan: Plan, args: Sequence[Any]) -> None:
    """Raise for pointers that a checked launch can neither check nor redirect to a copy of their memory."""
    for each, value in zip(plan.parameters, args, strict=True):
        if isinstance(value, ctypes.c_void_p) and value.value:
            what = "an address given as ctypes.c_void_p has no extent to check: give the tensor"
        elif isinstance(value, ctypes.Structure) and _holds_address(type(value)):
            what = (
                f"an address in a {type(value).__name__} has no extent to check: give the tensor as a separate "
                "parameter, or emulate with checks=False"
            )
        elif isinstance(value, torch.Tensor) and isinstance(each, Pointer) and each.element.endswith("*"):
            what = (
                f"{each.place} leads to further pointers, and a checked launch works on copies of the tensors, "
                "which those pointers do not reach. Give each tensor as a separate parameter, or emulate with "
                "checks=False"
            )
        else:
            continue
        raise EmulationError(plan.kernel, what)


def _holds_address(kind: type[Any]) -> bool:
    """Whether a ctypes type is a pointer or has one among its fields."""
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        return any(_holds_address(field[1]) for field in getattr(kind, "_fields_", ()))
    if issubclass(kind, ctypes.Array):
        return _holds_address(cast("type[Any]", kind._type_))
    return kind in (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_wchar_p) or issubclass(kind, ctypes._Pointer)


def _library(source: CudaSource, snapshot: Snapshot, name: str | None, checks: bool) -> Library:
    """The library of a kernel: all plain ones of the source together, an instance of a template alone."""
    unit = snapshot.unit(name)
    key = snapshot.fingerprint + str(source._given[1:]), unit, checks
    with _lock:
        if key not in _libraries:
            plain = [each.name for each in snapshot.found.kernels.values() if each.template is None]
            wanted = plain if unit is None else [unit]
            constants = list(dict.fromkeys(snapshot.found.constants))
            described = _described(source, snapshot.text)
            _libraries[key] = compile_library(described, wanted, checks, constants, snapshot.found.kernels)
        return _libraries[key]


def _described(source: CudaSource, text: str) -> Source:
    origin, settings = source._origin, source._settings
    line = origin.line_of_text() if origin.path is None else 1
    file = origin.path or (os.path.abspath(origin.python_file) if line else origin.label)
    return Source(
        text,
        origin.label,
        file,
        line or 1,
        include_dirs=tuple(Path(each) for each in settings.include_dirs),
        macros=tuple(macros(settings.options)),
        pre_included=tuple(settings.pre_included),
        directory=Path(origin.directory),
    )


def _as_nvrtc(message: str, source: CudaSource, spelling: str) -> str:
    """g++'s message about a kernel's name as NVRTC's for the same mistake."""
    text = source._current().found.kernels.get(spelling.partition("<")[0])
    if "no matches converting function" in message:
        return "function template" if text is not None and text.template is not None else "overloaded function"
    if "no matching function for call to 'enter(" in message or "opsmith_internal::of<" in message:
        return "address of a non-function"
    if found := _UNKNOWN.search(message):
        return f'identifier "{found[1]}" is undefined'
    return message
