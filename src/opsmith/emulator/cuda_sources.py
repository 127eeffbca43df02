"""cu.name[grid, block](...) inside of `emulate`: the kernels of a CudaSource on CPU tensors."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from ..errors import ConstantError, EmulationError
from ..kernels.cuda_source import constants as values
from ..kernels.cuda_source.parameters import Pointer
from ..kernels.cuda_source.plan import Plan
from ..kernels.emulation import state
from .launching import launch
from .library import Library, Source, compile_library

if TYPE_CHECKING:
    from ..kernels.cuda_source.launch import Launch
    from ..kernels.cuda_source.source import CudaSource

_CPU = -1  # what torch tells as the index of the CPU
_MACRO = re.compile(r"^(?:-D|--define-macro=)(.+)$")
_POINTER = struct.Struct("<Q")

_libraries: dict[tuple[str, str | None, bool], Library] = {}
_lock = threading.Lock()


def run(chosen: Launch, args: Sequence[Any]) -> None:
    """A launch, checked against the kernel's signature as on a GPU."""
    source, name, settings = chosen.kernel.source, chosen.kernel.name, state.settings
    library = _library(source, name, settings.checks)
    _put_constants(source, library)
    text = source._current().found.kernels.get(name.partition("<")[0])
    plan = Plan(name, library.types(name), text)
    for value in args:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise EmulationError(name, f"it was given a tensor on {value.device}, and runs on those of the CPU")
        if isinstance(value, ctypes.c_void_p) and value.value and settings.checks:
            raise EmulationError(name, "an address given as ctypes.c_void_p has no extent to check: give the tensor")
        if isinstance(value, ctypes.Structure) and settings.checks and _holds_address(type(value)):
            raise EmulationError(
                name,
                f"an address in a {type(value).__name__} has no extent to check: give the tensor as a parameter of its "
                "own, or emulate with checks=False",
            )
    frame = plan.pack(args, _CPU)
    buffer, addresses = frame[0], frame[1]
    pointers = [(each, offset) for each, offset in zip(plan.parameters, plan.offsets, strict=True) if _points(each)]

    def relocate(moved: Callable[[int], int]) -> None:
        for _, offset in pointers:
            (address,) = _POINTER.unpack_from(buffer, offset)
            _POINTER.pack_into(buffer, offset, moved(address))

    tensors = [
        (each.place.name or f"argument {number + 1}", value)
        for number, (each, value) in enumerate(zip(plan.parameters, args, strict=True))
        if isinstance(value, torch.Tensor)
    ]
    launch(name, library, name, (chosen.grid, chosen.block, chosen.shared), addresses, tensors, relocate, settings)


def set_constant(source: CudaSource, name: str, value: Any) -> None:
    """Sets a __constant__ variable for the launches to come."""
    library = _library(source, None, state.settings.checks)
    if name not in library.constants:
        known = ", ".join(library.constants) or "none"
        raise ConstantError(source.label, name, f"is not in the source; its constants are: {known}")
    _, variable = library.constant(name)
    _constants(source)[name] = values.held(source.label, name, variable, value, None).data


def _constants(source: CudaSource) -> dict[str, bytes]:
    """What a source's constants have been set to. Each source has its own, as on a GPU, also where two are equal."""
    found: dict[str, bytes] = source.__dict__.setdefault("_emulated_constants", {})
    return found


def _put_constants(source: CudaSource, library: Library) -> None:
    for name, initial in library.initial.items():
        address, variable = library.constant(name)
        data = _constants(source).get(name, initial)
        data = data if len(data) == variable.size else initial
        if ctypes.string_at(address, len(data)) != data:
            ctypes.memmove(address, data, len(data))


def _holds_address(kind: type[Any]) -> bool:
    """Whether a ctypes type is a pointer or has one among its fields."""
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        return any(_holds_address(field[1]) for field in getattr(kind, "_fields_", ()))
    if issubclass(kind, ctypes.Array):
        return _holds_address(cast("type[Any]", kind._type_))
    return kind in (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_wchar_p) or issubclass(kind, ctypes._Pointer)


def _points(parameter: object) -> bool:
    return isinstance(parameter, Pointer)


def _library(source: CudaSource, name: str | None, checks: bool) -> Library:
    """The library that has a kernel: all plain ones of the source together, an instance of a template for itself."""
    snapshot = source._current()
    unit = source._unit(name)
    key = snapshot.fingerprint + str(source._given[1:]), unit, checks
    with _lock:
        if key not in _libraries:
            plain = [each.name for each in snapshot.found.kernels.values() if each.template is None]
            wanted = plain if unit is None else [unit]
            constants = list(dict.fromkeys(snapshot.found.constants))
            _libraries[key] = compile_library(_described(source, snapshot.text), wanted, checks, constants)
        return _libraries[key]


def _described(source: CudaSource, text: str) -> Source:
    origin, settings = source._origin, source._settings
    line = origin.line_of_text() if origin.path is None else 1
    file = origin.path or (os.path.abspath(origin.python_file) if line else origin.label)
    macros = tuple(found[1] for option in settings.options if (found := _MACRO.match(option)))
    directories = tuple(Path(each) for each in settings.include_dirs)
    return Source(text, origin.label, file, line or 1, directories, macros, Path(origin.directory))
