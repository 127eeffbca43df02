"""Triton kernels on CPU tensors: Triton's own interpreter, for kernels that were made to be compiled.

TRITON_INTERPRET=1 makes @triton.jit itself return an interpreted function, and must be set before Triton is imported.
Here each JITFunction gets an interpreted copy of its Python function, in which every other JITFunction that it calls is
interpreted too, including Triton's standard library (tl.sum and the like).

Triton's interpreter changes triton.language while a launch runs. So launches take turns under a lock, and each restores
what it has changed. A Triton kernel that another thread compiles at that moment would see the changes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch

from ..errors import EmulationError, KernelFault, OpsmithError, SourceLine, described
from ..reference.signature import closed_over
from ..reference.tensors import extent
from .emulation import Grid, Settings, state
from .substitution import substituted

_lock = threading.RLock()


class Launcher:
    """Stands for a Triton kernel where it is launched: `launcher[grid](...)` on CPU tensors is interpreted."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return functools.partial(self.run, grid=grid, warmup=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def run(self, *args: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        if any(isinstance(each, torch.Tensor) and each.is_cuda for each in (*args, *keywords.values())):
            return self._kernel.run(*args, grid=grid, warmup=warmup, **keywords)
        return None if warmup else _run(self._kernel, grid, args, keywords)


def _run(kernel: Any, grid: Any, args: Sequence[Any], keywords: dict[str, Any]) -> None:
    """A launch through Autotuner, Heuristics and JITFunction; an autotuned kernel runs its first configuration."""
    from triton.runtime.autotuner import Autotuner, Heuristics

    if isinstance(kernel, Autotuner):
        config = kernel.configs[0]
        named = {**dict(zip(kernel.arg_names, args)), **keywords, **config.all_kwargs()}  # noqa: B905
        if config.pre_hook is not None:
            config.pre_hook(named)
        twice = config.kwargs.keys() & keywords.keys()
        if twice:
            raise EmulationError(
                _label(kernel.base_fn),
                f"{', '.join(sorted(twice))} is passed, but its configs set it: leave it out",
            )
        return _run(kernel.fn, grid, args, {**keywords, **config.all_kwargs()})
    if isinstance(kernel, Heuristics):
        for name, rule in kernel.values.items():
            keywords = {**keywords, name: rule({**dict(zip(kernel.arg_names, args)), **keywords})}  # noqa: B905
        return _run(kernel.fn, grid, args, keywords)
    return _interpret(kernel, grid, args, keywords)


def _interpret(kernel: Any, grid: Any, args: Sequence[Any], keywords: dict[str, Any]) -> None:
    from triton.runtime.errors import InterpreterError

    parameters = inspect.signature(kernel.fn).parameters
    known = {name: value for name, value in keywords.items() if name in parameters}
    try:
        bound = inspect.signature(kernel.fn).bind(*args, **known)
    except TypeError as error:
        raise EmulationError(_label(kernel.fn), f"its launch does not fit its parameters: {error}") from None
    bound.apply_defaults()
    blocks = _grid(kernel.fn, grid(bound.arguments) if callable(grid) else grid)
    if 0 in blocks:
        return
    with _lock:
        _import_ahead()
        interpreted = _interpreted(kernel)
        with _language_restored(), _rounding(), _watched(kernel.fn, bound.arguments, blocks, state.settings):
            _interpret_standard_library()
            try:
                interpreted.run(*args, grid=blocks, warmup=False, **known)
            except InterpreterError as error:
                cause = error
                while isinstance(cause, InterpreterError) and cause.__cause__ is not None:
                    cause = cause.__cause__
                if isinstance(cause, OpsmithError):
                    raise cause from None
                line = SourceLine.of_error(cause)
                raise EmulationError(_label(kernel.fn), f"{type(cause).__name__}: {cause}", line) from cause


@contextlib.contextmanager
def _rounding() -> Iterator[None]:
    """Inside, a float becomes the nearest bfloat16, as on a GPU. Triton's interpreter truncates it (3.6 and 3.7)."""
    import numpy
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    truncate = InterpreterBuilder.cast_impl

    def rounded(builder: Any, source: Any, target: Any) -> Any:
        if (source.dtype.scalar, target.scalar) != (tl.float32, tl.bfloat16):
            return truncate(builder, source, target)
        bits = numpy.ascontiguousarray(source.data).view(numpy.uint32)
        half = 0x7FFF + (bits >> 16 & 1)  # ties to even
        nearest = numpy.where(numpy.isnan(source.data), bits | 1 << 22, bits + half)
        return TensorHandle((nearest >> 16).astype(numpy.uint16), target.scalar)

    InterpreterBuilder.cast_impl = rounded
    try:
        yield
    finally:
        InterpreterBuilder.cast_impl = truncate


@functools.cache
def _import_ahead() -> None:
    """Imports what Triton imports with its first arguments, which must not happen while the language is interpreted."""
    from triton.runtime.jit import mangle_type

    mangle_type(torch.empty(1))


def _grid(function: Callable[..., Any], given: Any) -> Grid:
    listed = [given] if isinstance(given, int) else list(given)
    if not 1 <= len(listed) <= 3 or not all(isinstance(size, int) and size >= 0 for size in listed):
        raise EmulationError(_label(function), f"its grid is {given!r}: pass one to three numbers of programs")
    return tuple(listed + [1] * (3 - len(listed)))  # type: ignore[return-value]


def _label(function: Callable[..., Any]) -> str:
    return f"the Triton kernel {described(function)}"


# --- interpreted copies of compiled functions ---------------------------------------------------------------------

_copies: dict[int, Any] = {}


def _interpreted(kernel: Any) -> Any:
    """The interpreted copy of a JITFunction, with its author's namespace as it is now."""
    copy = _copies.get(id(kernel))
    if copy is None:
        copy = _copies[id(kernel)] = _interpreted_class()(kernel.fn)
        weakref.finalize(kernel, _copies.pop, id(kernel), None)
    copy.update()
    return copy


@functools.cache
def _interpreted_class() -> Any:
    import triton.language as tl
    from triton.runtime.errors import InterpreterError
    from triton.runtime.interpreter import InterpretedFunction

    class Interpreted(InterpretedFunction):  # type: ignore[misc]
        def __init__(self, function: FunctionType) -> None:
            self._author = function
            # Triton recompiles the source in the function's globals, adds the interpreter's names to them and loses the
            # closure: so the globals are a copy that includes the closure.
            self._namespace: dict[str, Any] = {}
            copy = FunctionType(
                function.__code__, self._namespace, function.__name__, function.__defaults__, function.__closure__
            )
            copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
            copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
            super().__init__(copy)
            self._updating = False

        def update(self) -> None:
            """Looks up every name again: a notebook may have redefined a function."""
            if self._updating:  # it calls itself
                return
            self._updating = True
            try:
                found = substituted(self._author, _is_tritons, _interpreted)
                names = {**found.__globals__, **closed_over(found)}
                self._namespace.update({**names, "_opsmith_tl": tl, "_opsmith_core": tl.core})
            finally:
                self._updating = False

        def __call__(self, *args: Any, **keywords: Any) -> Any:
            """Runs it as a device function, called from a kernel that is interpreted."""
            try:
                return self.rewrite()(*args, **keywords)
            except InterpreterError:
                raise
            except Exception as error:
                raise InterpreterError(repr(error)) from error

    return Interpreted


def _is_tritons(value: Any) -> bool:
    """Whether this is what @triton.jit makes of a function. With TRITON_INTERPRET=1 that is interpreted, but would add
    names to the function's module."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    return isinstance(value, (JITFunction, InterpretedFunction)) and not isinstance(value, _interpreted_class())


# --- what changes while a launch runs -----------------------------------------------------------------------------


def _language() -> list[Any]:
    """Every object of Triton whose attributes its interpreter, or this file, sets."""
    import triton.language as tl

    modules = [tl, tl.core, tl.math, tl.standard, tl.random]
    classes = [tl.core.tensor, tl.core.dtype, getattr(tl.core, "tensor_descriptor_base", None)]
    return [each for each in (*modules, *classes) if each is not None]


@contextlib.contextmanager
def _language_restored() -> Iterator[None]:
    """Restores the language on exit. Triton itself does not undo what the call of a device function has changed."""
    before = [(each, dict(vars(each))) for each in _language()]
    try:
        yield
    finally:
        for each, attributes in before:
            for name in vars(each).keys() - attributes.keys():
                if not isinstance(vars(each)[name], ModuleType):  # imported meanwhile, and kept
                    delattr(each, name)
            for name, value in attributes.items():
                if vars(each).get(name) is not value:
                    setattr(each, name, value)


def _interpret_standard_library() -> None:
    for each in _language():
        for name, value in list(vars(each).items()):
            if _is_tritons(value):
                interpreted = _interpreted(value)
                setattr(each, name, interpreted if isinstance(each, ModuleType) else _method(interpreted))


def _method(interpreted: Any) -> Callable[..., Any]:
    """`x.sum(0)` binds x to a function, but not to a callable object."""
    return lambda *args, **keywords: interpreted(*args, **keywords)


@contextlib.contextmanager
def _watched(function: Callable[..., Any], arguments: dict[str, Any], grid: Grid, settings: Settings) -> Iterator[None]:
    """Runs programs in the order of the settings, checks memory if they ask for it, and refuses arithmetic that the
    interpreter gets wrong."""
    from triton.runtime import interpreter

    builder, memory = interpreter.interpreter_builder, interpreter._interpreter
    own, patch_tensor = dict(vars(builder)), interpreter._patch_lang_tensor
    interpreter._patch_lang_tensor = functools.partial(_patch_tensor, patch_tensor)
    order, place = iter(settings.order(grid)), builder.set_grid_idx
    builder.set_grid_idx = lambda x, y, z: place(*next(order))
    if not _computes_in_bfloat16():
        for name in ("binary_op", "unary_op", "create_fma", "create_dot", "create_clampf", "create_idiv"):
            setattr(builder, name, _without_bfloat16(function, getattr(builder, name)))
    if settings.checks:
        interpreter._interpreter = _Memory(memory, function, arguments, builder)
    try:
        yield
    finally:
        interpreter._interpreter, interpreter._patch_lang_tensor = memory, patch_tensor
        for name in vars(builder).keys() - own.keys():
            delattr(builder, name)


def _patch_tensor(patch: Callable[..., None], tensor: Any, *scope: Any) -> None:
    """Triton's own patch of tl.tensor, and a fix for Triton 3.6: a scalar is an array of one element, which NumPy 2.5
    does not convert to an int."""
    patch(tensor, *scope)
    tensor.__index__ = lambda self: int(self.handle.data.item())


@functools.cache
def _computes_in_bfloat16() -> bool:
    """Whether this Triton's interpreter adds two bfloat16 numbers, and not the bits it keeps them in."""
    import numpy
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle, interpreter_builder

    one = TensorHandle(numpy.array([0x3F80], dtype=numpy.uint16), tl.bfloat16)
    return bool(interpreter_builder.create_fadd(one, one).data[0] == 0x4000)


def _without_bfloat16(function: Callable[..., Any], compute: Callable[..., Any]) -> Callable[..., Any]:
    def computed(*operands: Any, **keywords: Any) -> Any:
        for each in operands:
            dtype = getattr(getattr(each, "dtype", None), "scalar", None)
            if dtype is not None and (str(dtype) == "bf16" or str(dtype).startswith("fp8")):
                raise EmulationError(
                    _label(function), f"it computes in {dtype}, and Triton's interpreter would compute with the bits. "
                    "Compute in float32, x.to(tl.float32), as the GPU does internally"
                )  # fmt: skip
        return compute(*operands, **keywords)

    return computed


class _Memory:
    """Triton's access to memory, where each access must lie within a tensor of the launch."""

    def __init__(self, memory: Any, function: Callable[..., Any], arguments: dict[str, Any], builder: Any) -> None:
        self._memory = memory
        self._function = function
        self._builder = builder
        self._tensors = list(_tensors(arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._check("reads", pointers, mask, dtype.itemsize)
        return self._memory.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        self._check("writes", pointers, mask, value.dtype.itemsize)
        return self._memory.store(pointers, value, mask)

    def atomic_rmw(self, operation: Any, pointers: Any, value: Any, mask: Any, semantics: Any) -> Any:
        self._check("atomically changes", pointers, mask, value.dtype.itemsize)
        return self._memory.atomic_rmw(operation, pointers, value, mask, semantics)

    def atomic_cas(self, pointers: Any, compared: Any, value: Any, semantics: Any) -> Any:
        self._check("atomically changes", pointers, True, value.dtype.itemsize)
        return self._memory.atomic_cas(pointers, compared, value, semantics)

    def _check(self, does: str, pointers: Any, mask: Any, itemsize: int) -> None:
        import numpy

        pointers, mask = numpy.broadcast_arrays(pointers, mask)
        used = pointers[mask.astype(bool)]
        inside = numpy.zeros(used.shape, dtype=bool)
        for _, begin, end in self._tensors:
            inside |= (used >= begin) & (used + numpy.uint64(itemsize) <= end)
        if not inside.all():
            what = f"it {does} {itemsize} bytes {self._place(int(used[~inside][0]))}"
            notes = ["A GPU would read or overwrite whatever is there. Guard the access: mask=offsets < size"]
            block = tuple(self._builder.grid_idx)
            line = SourceLine.of_call()
            raise KernelFault(
                _label(self._function),
                "out of bounds",
                what,
                line and line.file,
                line and line.number,
                block,
                None,
                notes,
            )

    def _place(self, address: int) -> str:
        if not self._tensors:
            return "of memory that belongs to no tensor of the launch"
        name, begin, end = min(self._tensors, key=lambda tensor: max(tensor[1] - address, address - tensor[2], 0))
        if address < begin:
            return f"that begin {begin - address} bytes before {name}"
        return f"at byte {address - begin} of {name}, which has {end - begin}"


def _tensors(arguments: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    """(name, address of the first byte, address after the last) of each tensor argument."""
    for name, value in arguments.items():
        parts = value if isinstance(value, (tuple, list)) else [value]
        for part in parts:
            part = getattr(part, "base", part)  # a tensor descriptor's, or a tensor read as another type
            if isinstance(part, torch.Tensor) and part.numel():
                yield name, *extent(part)
