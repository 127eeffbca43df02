"""A copy of a function in which what it uses is replaced: its globals, closure and defaults, and those of its callees.

The function itself and its module are not changed. A kernel's function finds what it launches by name; to trace or
emulate it, it must find something else. Values in a container or on an instance are not followed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from ..reference.signature import EMPTY_CELL, closed_over

DEPTH = 8
"""How many calls deep a launch is found. It bounds the search through an author's modules."""

# Their many functions launch no kernel of an author's.
_FOREIGN = ("torch", "triton", "numba", "numba_cuda", "numpy", "builtins")


def reached(function: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    """Every wanted object that a function uses, by itself or through functions it calls."""
    search = Search(wanted)
    search.visit(function)
    return list(search.found.values())


def substituted(function: Any, wanted: Callable[[Any], bool], replacement: Callable[[Any], Any]) -> Any:
    """The function with each wanted value that it uses replaced by `replacement(value)`. Make a new copy for each call:
    names are looked up when it is made."""
    substitution = _Substitution(wanted, replacement)
    if isinstance(function, FunctionType):
        return substitution.function(function, DEPTH)
    return substitution.of(function, frozenset(), DEPTH)


class Search:
    """What a function uses: `found`, the wanted objects, and `functions`, those it may call, each by identity."""

    def __init__(self, wanted: Callable[[Any], bool]) -> None:
        self._wanted = wanted
        self.found: dict[int, Any] = {}
        self.functions: dict[int, FunctionType] = {}
        self._modules: set[tuple[int, frozenset[str]]] = set()

    def visit(self, value: Any, depth: int = DEPTH, names: frozenset[str] = frozenset()) -> None:
        """`names`: the names that the code using the value looks up, including attributes of a module."""
        if self._wanted(value):
            self.found[id(value)] = value
        elif not depth:
            return
        elif type(value) in (dict, list, tuple):
            for each in value.values() if isinstance(value, dict) else value:
                self.visit(each, depth - 1, names)
        elif isinstance(value, functools.partial):
            for each in (value.func, *value.args, *value.keywords.values()):
                self.visit(each, depth, names)
        elif isinstance(value, FunctionType):
            # The first function is followed wherever it comes from.
            if id(value) not in self.functions and not (self.functions and _foreign(value)):
                self.functions[id(value)] = value
                used = _names(value.__code__)
                for each in _used(value):
                    self.visit(each, depth - 1, used)
        elif _is_module(value) and (id(value), names) not in self._modules:
            self._modules.add((id(value), names))
            for name in names & vars(value).keys():
                self.visit(vars(value)[name], depth - 1, names)


class _Substitution:
    def __init__(self, wanted: Callable[[Any], bool], replacement: Callable[[Any], Any]) -> None:
        self._wanted = wanted
        self._replacement = replacement
        self._copies: dict[int, Any] = {}

    def of(self, value: Any, names: frozenset[str], depth: int) -> Any:
        if self._wanted(value):
            return self._replacement(value)
        if isinstance(value, functools.partial):
            keywords = {key: self.of(each, names, depth) for key, each in value.keywords.items()}
            positional = [self.of(each, names, depth) for each in value.args]
            return functools.partial(self.of(value.func, names, depth), *positional, **keywords)
        if isinstance(value, FunctionType) and depth and not _foreign(value):
            return self.function(value, depth)
        if _is_module(value) and depth:
            search = Search(self._wanted)
            search.visit(value, depth, names)
            return _Module(value, lambda each: self.of(each, names, depth - 1)) if search.found else value
        return value

    def function(self, function: FunctionType, depth: int) -> FunctionType:
        if id(function) in self._copies:
            return self._copies[id(function)]  # type: ignore[no-any-return]
        if not reached(function, self._wanted):
            return function
        names = _names(function.__code__)
        namespace = dict(function.__globals__)
        cells = tuple(CellType() for _ in function.__closure__ or ())
        copy = FunctionType(function.__code__, namespace, function.__name__, None, cells or None)
        self._copies[id(function)] = copy  # before what it uses: it may call itself
        self._copies[id(copy)] = copy
        for name in names & namespace.keys():
            namespace[name] = self.of(namespace[name], names, depth - 1)
        for cell, original in zip(cells, function.__closure__ or (), strict=True):
            if original != EMPTY_CELL:
                cell.cell_contents = self.of(original.cell_contents, names, depth - 1)
        copy.__defaults__ = tuple(self.of(each, names, depth - 1) for each in function.__defaults__ or ()) or None
        keywords = function.__kwdefaults__ or {}
        copy.__kwdefaults__ = {name: self.of(each, names, depth - 1) for name, each in keywords.items()} or None
        copy.__dict__.update(function.__dict__)
        copy.__module__, copy.__qualname__, copy.__doc__ = function.__module__, function.__qualname__, function.__doc__
        return copy


class _Module(ModuleType):
    """A module with some of its attributes replaced."""

    def __init__(self, module: ModuleType, replaced: Callable[[Any], Any]) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__["_opsmith_original"] = module, replaced

    def __getattr__(self, name: str) -> Any:
        module, replaced = self.__dict__["_opsmith_original"]
        return replaced(getattr(module, name))


def _used(function: FunctionType) -> Iterator[Any]:
    """The values that a function uses from outside of it."""
    for name in _names(function.__code__) & function.__globals__.keys():
        yield function.__globals__[name]
    yield from closed_over(function).values()
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def _names(code: CodeType) -> frozenset[str]:
    """The names that code looks up, as globals or as attributes, in its inner functions too."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return frozenset(code.co_names).union(*map(_names, inner))


def _foreign(function: FunctionType) -> bool:
    return str(function.__module__).partition(".")[0] in _FOREIGN


def _is_module(value: Any) -> bool:
    """Not Triton's own modules, whose attributes its interpreter replaces."""
    return isinstance(value, ModuleType) and value.__name__.partition(".")[0] != "triton"
