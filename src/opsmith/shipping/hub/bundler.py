"""Bundles functions with everything they refer to into the text of one file.

A name in a function refers to a value when the package is built. In the file it becomes:

    a module of torch or of Python's standard library, and what is in one    an import
    a function or class of the author's                                      its own bundled source
    an op of the build                                                       the generated function of that op
    numbers, strings, dtypes, and containers of such values                  a constant
    anything else                                                            an error: NotSelfContainedError
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import math
import sys
import types
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

from ..._lazy import import_by_name
from ...errors import NotSelfContainedError, SourceLine
from ...operator.op import Op
from .source import Edit, Source, UnreadableError, indented, source_of

DEPENDENCIES = {"einops": "einops", "helion": "helion", "tvm_ffi": "tvm-ffi"}
"""Other packages that a kernel may import, with the names that the Hub's `kernels` uses for them."""

_SEARCHED = (
    "torch",
    "torch.nn.functional",
    "torch.special",
    "torch.linalg",
    "torch.fft",
    "torch.nn",
    "math",
    "operator",
)
_IMPORTED = {"torch": torch, "types": types, "Path": Path}
"""What every file imports."""
_PLAIN = (torch.dtype, torch.layout, torch.memory_format)


@dataclass(frozen=True)
class _Place:
    """Where a function refers to a value, for messages. `packages`: those whose functions may be bundled."""

    owner: str
    source: Source
    node: ast.AST | None
    name: str
    packages: tuple[str, ...]


@dataclass
class Bundler:
    """`ops`: the function of each op in the file, by op name. `packages`: those whose functions may be bundled.
    `reserved`: names that the file uses itself."""

    ops: Mapping[str, str]
    packages: tuple[str, ...]
    reserved: Collection[str] = ()
    dependencies: set[str] = field(default_factory=set)
    uses: dict[str, set[str]] = field(default_factory=dict)
    """By definition, the ops that it calls, directly or through others."""
    _taken: dict[str, object] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _imports: list[str] = field(default_factory=list)
    _definitions: list[str] = field(default_factory=list)
    _alive: list[object] = field(default_factory=list)  # so that no id is reused
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._taken.update(dict.fromkeys((*self.reserved, *self.ops.values()), self))
        for name, value in _IMPORTED.items():
            self._taken[name] = value
            self._imports.append(str(self._import_of(value, name)))

    def bundle(self, thing: Any, owner: str, name: str | None = None, packages: tuple[str, ...] = ()) -> str:
        """Adds a function or class that `owner` ("the op mylib::x") needs; returns its name in the text."""
        thing = inspect.unwrap(thing)
        if id(thing) in self._names:
            return self._names[id(thing)]
        source = self._read(thing, owner, name or str(getattr(thing, "__name__", thing)))
        wanted = name or str(thing.__name__)
        chosen = self._names[id(thing)] = self._free(wanted, thing)
        self.uses[chosen] = set()
        self._open.append(chosen)
        edits = self._edits(source, owner, packages or self.packages)
        self._open.pop()
        if thing.__name__ == "<lambda>":
            self._define(f"{chosen} = {source.edited(edits)}")
        else:
            self._define(source.edited(edits, chosen))
        self._used(self.uses[chosen])
        return chosen

    def method(self, function: Any, owner: str) -> tuple[str, set[str], Source]:
        """A method's text as the member of a class, the ops that it calls, and its source."""
        source = self._read(function, owner, function.__name__)
        key = f"{owner}.{function.__name__}"
        self.uses[key] = set()
        self._open.append(key)
        try:
            edits = self._edits(source, owner, self.packages)
        finally:
            self._open.pop()
        return indented(source.edited(edits)), self.uses[key], source

    def text(self) -> str:
        found = sorted(set(self._imports), key=lambda each: (each.startswith("from "), each))
        return "\n\n".join(each.rstrip("\n") + "\n" for each in ["\n".join(found), *self._definitions])

    # --- names ------------------------------------------------------------------------------------------------

    def _edits(self, source: Source, owner: str, packages: tuple[str, ...]) -> list[Edit]:
        self._check_statements(source, owner, packages)
        edits: list[Edit] = []
        for name in sorted(source.names()):
            nodes = source.uses(name)
            place = _Place(owner, source, nodes[0] if nodes else None, name, packages)
            if name not in source.scope:
                raise self._refused(place, "no such variable exists", "define it above")
            value = source.scope[name]
            if isinstance(value, ModuleType) and not self._importable(value.__name__):
                edits += self._attributes(place, value)
                continue
            self._rename(edits, place, self._named(place, value, name))
        for name in sorted(source.annotated() & source.scope.keys() - source.names()):
            self._annotation(source, name)
        return edits

    def _rename(self, edits: list[Edit], place: _Place, text: str) -> None:
        if text == place.name:
            return
        if place.source.binds(place.name):
            what = "the function has a variable of the same name"
            raise self._refused(place, what, "give one of them another name")
        edits += [Edit(node, text) for node in place.source.uses(place.name)]

    def _attributes(self, place: _Place, module: ModuleType) -> list[Edit]:
        """Replaces `helpers.scaled`, where `helpers` is a module of the author's, with `scaled`, which is bundled."""
        parents = {child: node for node in ast.walk(place.source.tree) for child in ast.iter_child_nodes(node)}
        edits: list[Edit] = []
        for use in place.source.uses(place.name):
            node: ast.expr = use
            value: Any = module
            name = place.name
            while isinstance(value, ModuleType) and not self._importable(value.__name__):
                parent = parents.get(node)
                root = value.__name__.partition(".")[0]
                here = _Place(place.owner, place.source, node, name, place.packages)
                if not self._is_authors(value.__name__, place.packages) and root != "opsmith":
                    raise self._refused(here, f"it is the module {value.__name__}", self._fix_of_import())
                if not isinstance(parent, ast.Attribute) or not hasattr(value, parent.attr):
                    if root == "opsmith" and not self._is_authors(value.__name__, place.packages):
                        raise self._refused(here, "it is opsmith itself", _WITHOUT_OPSMITH)
                    raise self._refused(here, f"it is the module {value.__name__}", "import what is used from it")
                value, name, node = getattr(value, parent.attr), parent.attr, parent
            here = _Place(place.owner, place.source, use, name, place.packages)
            edits.append(Edit(node, self._named(here, value, name)))
        return edits

    def _annotation(self, source: Source, name: str) -> None:
        """Annotations are not run; what they name is imported where that is simple."""
        value = source.scope[name]
        statement = None if name in self._taken else self._import_of(value, name)
        if statement is not None:
            self._taken[name] = value
            self._imports.append(statement)

    def _check_statements(self, source: Source, owner: str, packages: tuple[str, ...]) -> None:
        for node in ast.walk(source.tree):
            place = _Place(owner, source, node, "", packages)
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                what = "it changes a variable outside of the function"
                raise self._refused(place, what, "return the value instead", node.names[0])
            if isinstance(node, ast.Import):
                for each in node.names:
                    if not self._importable(each.name):
                        raise self._refused(place, "it is imported", self._fix_of_import(), each.name)
            if isinstance(node, ast.ImportFrom) and (node.level or not self._importable(node.module or "")):
                given = f"{'.' * node.level}{node.module or ''}"
                raise self._refused(place, "it is imported inside the function", self._fix_of_import(), given)
            outside = not isinstance(source.tree.body[0], ast.ClassDef)
            if outside and isinstance(node, ast.Name) and node.id == "super":
                raise self._refused(place, "it calls a base class", "write what the base class does", "super()")

    # --- values -----------------------------------------------------------------------------------------------

    def _named(self, place: _Place, value: Any, name: str) -> str:
        """The expression for a value to which a function refers by `name`."""
        if isinstance(value, Op):
            return self._op(place, value)
        if id(value) in self._names:
            known = self._names[id(value)]
            self._used(self.uses.get(known, set()))
            return known
        statement = self._import_of(value, name)
        if statement is not None:
            if self._taken.setdefault(name, value) is value:
                self._imports.append(statement)
                return name
            chosen = self._free(name, value)
            self._imports.append(self._import_of(value, name, chosen) or statement)
            return chosen
        plain = inspect.unwrap(value) if callable(value) else value
        if isinstance(plain, (FunctionType, type)):
            return self._bundled(place, plain, name)
        return self._constant(name, self._expression(place, value))

    def _op(self, place: _Place, op: Op) -> str:
        if op.name not in self.ops:
            what = f"it is the op {op.name}, which is not part of this build"
            raise self._refused(place, what, "write what it computes with torch")
        self._used({op.name})
        return self.ops[op.name]

    def _bundled(self, place: _Place, value: Any, name: str) -> str:
        module = str(getattr(value, "__module__", None))
        if not self._is_authors(module, place.packages):
            if module.partition(".")[0] == "opsmith":
                raise self._refused(place, "it is part of opsmith", _WITHOUT_OPSMITH)
            raise self._refused(place, f"it belongs to {module.partition('.')[0]}", self._fix_of_import())
        wanted = name if value.__name__ == "<lambda>" else value.__name__
        bundled = self.bundle(value, place.owner, wanted, place.packages)
        self._used(self.uses.get(bundled, set()))
        return bundled

    def _expression(self, place: _Place, value: Any) -> str:
        """A value as an expression: a constant, or a container of what can be named."""
        text = _literal(value)
        if text is not None:
            return text
        if isinstance(value, enum.Enum):
            return f"{self._bundled(place, type(value), type(value).__name__)}.{value.name}"
        if isinstance(value, functools.partial):
            self._imports.append("import functools")
            keywords = {f"{key}={self._expression(place, each)}" for key, each in value.keywords.items()}
            parts = [value.func, *value.args]
            return f"functools.partial({', '.join([*(self._expression(place, e) for e in parts), *sorted(keywords)])})"
        if type(value) in (list, tuple, set, frozenset):
            ordered = value if isinstance(value, (list, tuple)) else sorted(value, key=repr)
            items = [self._expression(place, item) for item in ordered]
            inside = ", ".join(items)
            if type(value) is list:
                return f"[{inside}]"
            if type(value) is tuple:
                return f"({inside}{',' if len(items) == 1 else ''})"
            return f"{type(value).__name__}([{inside}])"
        if type(value) is dict:
            pairs = (f"{self._expression(place, k)}: {self._expression(place, v)}" for k, v in value.items())
            return f"{{{', '.join(pairs)}}}"
        own = _identifier(value, place.name)
        if isinstance(value, (FunctionType, type, Op)) or self._import_of(value, own) is not None:
            return self._named(place, value, own)
        if isinstance(value, torch.Tensor):
            fix = "make the tensor inside the function (torch.tensor(..., device=x.device)) or take it as an argument"
            raise self._refused(place, "it is a Tensor, which a source file cannot hold", fix)
        kind = type(value)
        root = kind.__module__.partition(".")[0]
        what = f"it is a {kind.__qualname__} of {root}" if root not in ("builtins", "__main__") else f"it is a {kind}"
        if root == "opsmith":
            raise self._refused(place, what, _WITHOUT_OPSMITH)
        raise self._refused(place, what, "use a number, a string, a dtype, a function, or a tuple of those")

    def _constant(self, name: str, text: str) -> str:
        definition = f"{name} = {text}"
        if self._taken.get(name) == definition:
            return name
        chosen = self._free(name, definition)
        self._define(f"{chosen} = {text}\n")
        return chosen

    # --- imports ----------------------------------------------------------------------------------------------

    def _importable(self, module: str) -> bool:
        root = module.partition(".")[0]
        return root in ("torch", *DEPENDENCIES) or (root in sys.stdlib_module_names and root != "__main__")

    def _import_of(self, value: Any, name: str, bound: str | None = None) -> str | None:
        """The statement that binds a value that an importable module has; None if there is none."""
        bound = bound or name
        if isinstance(value, ModuleType):
            if not self._importable(value.__name__):
                return None
            self._depend(value.__name__)
            return f"import {value.__name__}" if bound == value.__name__ else f"import {value.__name__} as {bound}"
        if isinstance(value, (bool, int, float, str, bytes, complex, type(None), list, dict, set, *_PLAIN)):
            return None
        own = getattr(value, "__name__", None) or getattr(value, "_name", None) or name
        for module in (getattr(value, "__module__", None), *_SEARCHED):
            if isinstance(module, str) and self._importable(module) and str(own).isidentifier():
                found = sys.modules.get(module) or import_by_name(module)
                if getattr(found, str(own), None) is value:
                    self._depend(module)
                    return f"from {module} import {own}" + ("" if own == bound else f" as {bound}")
        return None

    def _depend(self, module: str) -> None:
        root = module.partition(".")[0]
        if root in DEPENDENCIES:
            self.dependencies.add(DEPENDENCIES[root])

    def _fix_of_import(self) -> str:
        others = ", ".join(sorted(DEPENDENCIES))
        return f"write it with torch: a kernel may import torch, Python's standard library, {others}"

    # --- bookkeeping ------------------------------------------------------------------------------------------

    def _is_authors(self, module: str, packages: Iterable[str]) -> bool:
        return any(f"{module}.".startswith(f"{package}.") for package in packages)

    def _free(self, name: str, key: object) -> str:
        chosen, count = name, 2
        while chosen in self._taken:
            chosen, count = f"{name}_{count}", count + 1
        self._taken[chosen] = key
        self._alive.append(key)
        return chosen

    def _define(self, text: str) -> None:
        self._definitions.append(text)

    def _used(self, ops: Iterable[str]) -> None:
        if self._open:
            self.uses[self._open[-1]].update(ops)

    def _read(self, thing: Any, owner: str, name: str) -> Source:
        try:
            return source_of(thing, _is_opsmiths)
        except UnreadableError as error:
            raise NotSelfContainedError(owner, name, str(error), "") from None

    def _refused(self, place: _Place, what: str, fix: str, name: str = "") -> NotSelfContainedError:
        line: SourceLine = place.source.line(place.node)
        return NotSelfContainedError(place.owner, name or place.name, what, fix, line)


_WITHOUT_OPSMITH = "use torch alone: opsmith is not installed where the kernel is loaded"


def _is_opsmiths(decorator: Any) -> bool:
    """Whether a decorator is one of opsmith's, or belongs to an op, and so has no meaning without opsmith."""
    if decorator is None:
        return False
    module = decorator.__name__ if isinstance(decorator, ModuleType) else getattr(decorator, "__module__", None)
    kind = type(decorator).__module__
    return any(str(each).partition(".")[0] == "opsmith" for each in (module, kind))


def literal(value: Any) -> str:
    """The default of an operator's argument as an expression."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return _literal(value) or repr(value)


def _literal(value: Any) -> str | None:
    if value is None or type(value) in (bool, int, str, bytes, complex):
        return repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, _PLAIN):
        return str(value)
    return f'torch.device("{value}")' if isinstance(value, torch.device) else None


def _identifier(value: Any, default: str) -> str:
    name = str(getattr(value, "__name__", default))
    return name if name.isidentifier() else f"{default.lower()}_function"
