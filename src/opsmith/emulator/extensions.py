"""Kernels of opsmith.extension inside `emulate`: host code runs as usual, on CPU tensors; its launches are emulated.

The extension is compiled a second time, for the emulator (building.py). There opsmith::launch calls the hook
below with the kernel, the geometry, the addresses of the arguments, and the tensors that host code has used. An error
of a launch is stored while C++ returns to its caller, and raised there.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..errors import EmulationError, LaunchConfigurationError, OpsmithError
from ..kernels import emulation, host
from ..kernels.clusters import PORTABLE
from ..kernels.configuration import Extent, LaunchConfiguration, launch_configuration
from ..kernels.cuda_source.plan import shown
from ..kernels.emulation import Settings, state
from ..kernels.native import NativeFunction, NativeOperator
from ..toolchain import load_library
from ..toolchain.elf import demangled
from . import cuda_sources
from .building import ExtensionLibrary, compile_extension
from .launching import launch, refusal, require
from .library import Library, runtime
from .memory import Piece, piece
from .structures import DONE, POINTER, POINTER_TO_POINTERS, RECORD, REFUSED, STOPPED, Hook, HostLaunch

if TYPE_CHECKING:
    from ..kernels.cuda_source.source import CudaSource
    from ..kernels.extension import Extension, ExtensionFunction

_WORD = 8

_libraries: weakref.WeakKeyDictionary[Extension, dict[bool, ExtensionLibrary]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


class EmulatedFunction(NativeFunction):
    """A function of an extension whose launches the emulator runs; built on its first call."""

    entered_directly = False
    ready = False

    def __init__(self, function: ExtensionFunction) -> None:
        self.extension = function.extension
        self.symbol = function.symbol

    @property
    def path(self) -> Path:
        return self.built(state.settings.checks).path

    def built(self, checks: bool) -> ExtensionLibrary:
        with _lock:
            found = _libraries.setdefault(self.extension, {})
            if checks not in found:
                found[checks] = built = compile_extension(self.extension.emulator_recipe(), checks)
                if hasattr(native := load_library(built.path), host.SET_HOST):
                    find = host.finding(functools.partial(_find, self.extension.kernels), _failed)
                    host.set_host(native, find, gpu=lambda: state.settings.gpu)
            return found[checks]

    def unknown(self) -> OpsmithError:
        return self.extension._unknown(self.symbol)

    def as_operator(self, schema: Callable[[str], str]) -> NativeOperator:
        return EmulatedOperator(self, schema)

    def __str__(self) -> str:
        return f"CUDA C++ {self.symbol} (extension {self.extension.name}, emulated)"

    def __repr__(self) -> str:
        return f"<emulated function {self.symbol} of {self.extension.name}>"


class EmulatedOperator(NativeOperator):
    """An emulated function as Python calls it, in the library with checks or the one without."""

    def __init__(self, function: EmulatedFunction, schema: Callable[[str], str]) -> None:
        self.name = str(function)
        self.call = self._call
        self._function = function
        self._schema = schema
        self._arguments = [argument.name for argument in torch._C.parse_schema(schema("f")).arguments]
        self._operators: dict[bool, NativeOperator] = {}

    def _call(self, *args: Any) -> Any:
        settings = state.settings
        built = self._function.built(settings.checks)
        operator = self._operator(built, settings.checks)
        call = _Call(built, self._function.extension.kernels, settings, _pieces(self._arguments, args))
        _calls.stack.append(call)
        try:
            returned = operator.call(*args)
        except RuntimeError:
            if call.error is None:
                raise
        finally:
            _calls.stack.pop()
        if call.error is not None:  # also where host code has caught the C++ exception
            raise call.error
        return returned

    def _operator(self, built: ExtensionLibrary, checks: bool) -> NativeOperator:
        with _lock:
            if checks not in self._operators:
                _set_hook()
                exported = NativeFunction(built.path, self._function.symbol)
                exported.unknown = self._function.unknown  # type: ignore[method-assign]
                self._operators[checks] = NativeOperator(exported, self._schema)
            return self._operators[checks]


# --- A call, and the launches that it makes -------------------------------------------------------------------------


class _Call:
    """One call of an exported function."""

    def __init__(
        self, built: ExtensionLibrary, kernels: CudaSource | None, settings: Settings, pieces: Sequence[Piece]
    ) -> None:
        self.built, self.kernels, self.settings, self.pieces = built, kernels, settings, pieces
        self.error: BaseException | None = None


class _Calls(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Call] = []


_calls = _Calls()


@Hook
def _launched(pointer: Any) -> int:
    call, launched = _calls.stack[-1], pointer.contents
    if call.error is not None:
        return STOPPED
    try:
        return _run(call, launched) if launched.name is None else _run_by_name(call, launched)
    except BaseException as error:
        call.error = error
        return STOPPED


@functools.cache
def _set_hook() -> None:
    runtime().opsmith_set_host_hook(_launched)


def _run(call: _Call, launched: HostLaunch) -> int:
    library = call.built.library
    assert library is not None
    kernel = _kernel_name(library.functions.get(launched.kernel, ""))
    grid, block = launched.grid.triple, launched.block.triple
    require(kernel, library, launched.kernel, block, 0)
    if refused := refusal(kernel, library, launched.kernel, grid, block, launched.shared_bytes):
        launched.refusal = refused.encode()
        return REFUSED
    names = _parameter_names(call.built, kernel, launched.parameter_count)
    slots = _pointers(call, kernel, launched, names, library) if call.settings.checks else []
    configuration = LaunchConfiguration(grid, block, launched.shared_bytes, _cluster(call.built, kernel))
    launch(
        kernel, library, launched.entry, configuration, launched.arguments,
        [slot.piece for slot in slots], _relocating(slots), call.settings,
        readable=(launched.arguments_begin, launched.arguments_end),
    )  # fmt: skip
    return DONE


def _cluster(built: ExtensionLibrary, kernel: str) -> Extent | None:
    """What a kernel's __cluster_dims__ say, where they are numbers."""
    text = built.kernels.get(kernel.partition("<")[0])
    if text is None or not text.cluster_dims:
        return None
    sizes = [each.strip().rstrip("uUlL") for each in text.cluster_dims.split(",")]
    if not all(each.isdigit() for each in sizes):
        raise EmulationError(
            kernel,
            f"it has __cluster_dims__({text.cluster_dims}), and the emulator reads those of an extension only where "
            "they are numbers: write them as numbers",
        )
    x, y, z = [*map(int, sizes), 1, 1][:3]
    if x * y * z > PORTABLE:
        raise LaunchConfigurationError(
            kernel,
            f"its cluster has {x * y * z} blocks, and more than {PORTABLE} need an attribute of the kernel that "
            "opsmith::launch does not set. Launch it from a cuda_source, by its name",
        )
    return x, y, z


def _relocating(slots: Sequence[_Slot]) -> Callable[[Callable[[int], int]], None]:
    def relocate(moved: Callable[[int], int]) -> None:
        for slot in slots:
            word = ctypes.c_uint64.from_address(slot.address)
            word.value = moved(word.value)

    return relocate


# --- Launches of a CudaSource's kernels by their names ----------------------------------------------------------------


def _find(kernels: CudaSource | None, name: str) -> host.KernelInfo | None:
    if kernels is None:
        raise EmulationError(name, "it is launched by its name, and the extension has no kernels=")
    plan = emulation.cuda_emulator().plan(kernels, name)
    return None if plan is None else host.described(plan)


def _failed(error: BaseException) -> None:
    if _calls.stack[-1].error is None:
        _calls.stack[-1].error = error


def _run_by_name(call: _Call, launched: HostLaunch) -> int:
    kernels, name = call.kernels, launched.name.decode()
    assert kernels is not None
    configuration = launch_configuration(name, (launched.grid.triple, launched.block.triple, launched.shared_bytes))
    names = cuda_sources.plan_of(kernels, name).names
    shown_names = [given or f"argument {number + 1}" for number, given in enumerate(names)]
    slots: list[_Slot] = []

    def pieces(library: Library) -> Sequence[Piece]:
        if call.settings.checks:
            slots.extend(_pointers(call, name, launched, shown_names, library))
        return [slot.piece for slot in slots]

    cuda_sources.run_by_name(kernels, name, configuration, launched.arguments, pieces, _relocating(slots))
    return DONE


# --- Pointers among the arguments -----------------------------------------------------------------------------------


class _Slot(NamedTuple):
    """The address of a pointer among the arguments, and the memory that it leads to."""

    address: int
    piece: Piece


def _pointers(call: _Call, kernel: str, launched: HostLaunch, names: Sequence[str], library: Library) -> list[_Slot]:
    """The pointers of a launch. Raises EmulationError for one whose memory is not known."""
    made = [Piece("", each.description.decode(), each.begin, each.end, each.storage) for each in launched.tensors]
    known = [*call.pieces, *made]
    by_data = [piece for piece, each in zip(made, launched.tensors, strict=True) if each.by_data]
    slots = []
    for name, parameter in zip(names, launched.parameters, strict=True):
        if parameter.kind == RECORD:
            for address in range(parameter.address, parameter.address + parameter.size - _WORD + 1, _WORD):
                inside = _found(known, by_data, _value(address))
                if inside is not None:
                    slots.append(_Slot(address, inside._replace(name=inside.name or f"a tensor of {name}")))
        elif parameter.kind in (POINTER, POINTER_TO_POINTERS) and (value := _value(parameter.address)):
            type_name = parameter.type.decode()
            declared = f"{name} ({type_name if launched.name else shown(demangled(type_name))})"
            if parameter.kind == POINTER_TO_POINTERS:
                raise EmulationError(
                    kernel,
                    f"{declared} leads to further pointers, and a checked launch works on copies of the tensors, "
                    "which those pointers do not reach. Give each tensor as a separate parameter, or the pointers in a "
                    "struct by value; or emulate with checks=False",
                )
            inside = _found(known, by_data, value)
            if inside is not None:
                slots.append(_Slot(parameter.address, inside._replace(name=name)))
            elif not any(region.begin <= value < region.end for region in library.variables):
                raise EmulationError(
                    kernel,
                    f"{declared} leads to memory outside every known tensor, so that its extent cannot be checked. "
                    "Known are the tensors that the function was called with, those from opsmith::empty, and those "
                    "whose elements opsmith::data has returned: get this pointer from opsmith::data, or emulate with "
                    "checks=False",
                )
    return slots


def _value(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _found(known: Sequence[Piece], by_data: Sequence[Piece], address: int) -> Piece | None:
    """The memory that a pointer leads to: the tensor whose elements opsmith::data returned there, else one that has the
    address inside, else one that it is the end of. Of several it may be meant for the largest."""
    candidates = [each for each in by_data if each.begin == address]
    candidates = candidates or [each for each in known if each.begin <= address < each.end]
    candidates = candidates or [each for each in known if address in (each.begin, each.end)]
    return max(candidates, key=lambda each: each.end - each.begin, default=None) if address else None


def _pieces(names: Sequence[str], args: Sequence[Any]) -> list[Piece]:
    """The tensors that a function is called with, by the names of its arguments."""
    found = []
    for name, value in zip(names, args, strict=True):
        if isinstance(value, torch.Tensor):
            found.append((name, value))
        elif isinstance(value, (tuple, list)):
            found += [(f"{name}[{i}]", each) for i, each in enumerate(value) if isinstance(each, torch.Tensor)]
    return [piece(name, tensor) for name, tensor in found if tensor.layout is torch.strided]


# --- Names ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _kernel_name(symbol: str) -> str:
    """'scale<float>' for the symbol of `template <typename T> __global__ void scale(T* x)`."""
    if not symbol.startswith("_Z"):
        return symbol or "the kernel"
    name = demangled(symbol).replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for position, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return name[:position]
    return name


def _parameter_names(built: ExtensionLibrary, kernel: str, count: int) -> list[str]:
    text = built.kernels.get(kernel.partition("<")[0])
    written = [each.name for each in text.parameters] if text is not None and len(text.parameters) == count else []
    return [name or f"argument {number + 1}" for number, name in enumerate(written or [""] * count)]
