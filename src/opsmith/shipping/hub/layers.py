"""Layers for `kernelize`: the package's own modules that call its ops, each as a class with only a forward."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import nn

from ...errors import NotSelfContainedError
from .bundler import Bundler
from .source import Source

BACKWARD, COMPILE = "gradients", "compile"
"""The check items that show that an op has a backward, and that torch.compile takes it."""


@dataclass(frozen=True)
class Layer:
    name: str
    doc: str
    forward: str
    attributes: tuple[str, ...]
    """What its forward reads from the layer that it replaces."""
    has_backward: bool
    can_torch_compile: bool


def layers_of(
    package: ModuleType, bundler: Bundler, proof: Mapping[str, frozenset[str]]
) -> tuple[list[Layer], list[str]]:
    """The layers, and notes: which modules are left out, and which flags are False because no check has passed."""
    layers: list[Layer] = []
    notes: list[str] = []
    for module in modules_of(package):
        owner = f"The layer {module.__name__}"
        try:
            forward, ops, source = bundler.method(module.forward, owner)
        except NotSelfContainedError as error:
            notes.append(f"{module.__name__} is left out of the layers. {error}")
            continue
        if not ops:
            continue
        attributes, methods = _of_self(module, source)
        if methods:
            listed = ", ".join(methods)
            notes.append(
                f"{module.__name__} is left out of the layers: its forward uses {listed} of its own class, but "
                "kernelize replaces only forward. Make it a function outside of the class."
            )
            continue
        if module.__name__ in (*bundler.ops.values(), *(each.name for each in layers)):
            notes.append(f"{module.__name__} is left out of the layers: another one has the same name. Rename it.")
            continue
        shown = {item: all(item in proof.get(op, ()) for op in ops) for item in (BACKWARD, COMPILE)}
        flags = [flag for item, flag in ((BACKWARD, "has_backward"), (COMPILE, "can_torch_compile")) if not shown[item]]
        if flags:
            lacking = [op for op in sorted(ops) if not {BACKWARD, COMPILE} <= proof.get(op, frozenset())]
            notes.append(
                f"{module.__name__}: {' and '.join(flags)} {'is' if len(flags) == 1 else 'are'} False, because no file "
                f"shows it for {', '.join(lacking)}. Run `opsmith check --json FILE`, then build with --passport FILE."
            )
        doc = inspect.cleandoc(module.__doc__ or "").partition("\n")[0]
        layers.append(Layer(module.__name__, doc, forward, attributes, shown[BACKWARD], shown[COMPILE]))
    return layers, notes


def classes(layers: Sequence[Layer]) -> str:
    """The classes, and `layers`, where `kernels` looks for them."""
    parts = []
    for layer in layers:
        doc = layer.doc or f"{layer.name}."
        if layer.attributes:
            doc += f"\n\n    It reads {', '.join(layer.attributes)} of the layer that it replaces."
        escaped = doc.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        parts.append(
            f'class {layer.name}(torch.nn.Module):\n    """{escaped}"""\n\n'
            f"    has_backward = {layer.has_backward}\n    can_torch_compile = {layer.can_torch_compile}\n\n"
            f"{layer.forward}"
        )
    names = ", ".join(f"{layer.name}={layer.name}" for layer in layers)
    return "\n\n".join([*parts, f"layers = types.SimpleNamespace({names})"])


def modules_of(package: ModuleType) -> list[type[nn.Module]]:
    """The package's classes of modules that have a forward of their own, by name."""
    prefix = f"{package.__name__}."
    found: dict[str, type[nn.Module]] = {}
    for name, module in sorted(sys.modules.items()):
        if f"{name}.".startswith(prefix) and isinstance(module, ModuleType):
            for value in list(vars(module).values()):
                is_module = inspect.isclass(value) and issubclass(value, nn.Module) and "forward" in vars(value)
                if is_module and f"{value.__module__}.".startswith(prefix) and not value.__name__.startswith("_"):
                    found[f"{value.__module__}.{value.__qualname__}"] = value
    return [found[key] for key in sorted(found, key=lambda key: (found[key].__name__, key))]


def _of_self(module: type[nn.Module], source: Source) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(attributes of the instance, members of the class) that forward uses through its first parameter."""
    function = source.tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    first = function.args.posonlyargs + function.args.args
    own = first[0].arg if first else ""
    used: dict[str, Any] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == own:
            used[node.attr] = None
    ours = {name for base in module.__mro__ if base not in nn.Module.__mro__ for name in vars(base)}
    methods = tuple(sorted(name for name in used if name in ours))
    return tuple(name for name in used if name not in ours and not hasattr(nn.Module, name)), methods
