"""The templates: files of a working project with placeholder names, in layers. A kind of op is a choice of layers."""

from __future__ import annotations

import functools
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable

from . import headers

PACKAGE, OP, MODULE = "my_package", "my_op", "MyOp"
"""The names in the templates: of the package, of the op, of its nn.Module."""

KINDS = {
    "pointwise": "each element depends on the elements at its position; opsmith generates the kernels",
    "rowwise": "each row depends on the rows at its position; opsmith generates the kernels",
    "op": "any PyTorch function, with its own gradient; add a kernel later",
    "cuda": "CUDA C++ kernels, launched from Python",
    "extension": "C++ and CUDA with host code; calls do not go through Python",
    "triton": "Triton kernels",
    "numba": "Numba CUDA kernels",
}
_SHARED = "shared_op"
"""The layer of the op that all kinds but pointwise have; rowwise replaces its reference."""


def example(kind: str) -> str:
    """What the op of a new project is called."""
    return "add_silu" if kind == "pointwise" else "add_rms_norm"


def rendered(kind: str, package: str, op: str, *, project: bool) -> dict[str, str]:
    """The text of each file by its path, for an op of that kind; with the files of a project around it or without."""
    names = {PACKAGE: package, OP: op, MODULE: camel(op), **headers.directories()}
    pattern = re.compile("|".join(names))

    def renamed(text: str) -> str:
        return _IMPORT.sub(_sorted_import, pattern.sub(lambda found: names[found[0]], text))

    return {renamed(path): renamed(text) for path, text in sorted(_texts(kind, project).items())}


_IMPORT = re.compile(r"^from (\S+) import ([A-Za-z_]\w*(?:, \w+)+)$", re.MULTILINE)
_LINE = 120


def _sorted_import(found: re.Match[str]) -> str:
    """An import of these names as ruff formats it: sorted, and one per line if it is too long."""
    names = sorted(found[2].split(", "), key=lambda name: (name[:1].islower(), name))
    if len(found[0]) <= _LINE:
        return f"from {found[1]} import {', '.join(names)}"
    return f"from {found[1]} import (\n    {f',{chr(10)}    '.join(names)},\n)"


def camel(name: str) -> str:
    """'add_rms_norm' -> 'AddRmsNorm'."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


@functools.cache
def names_in_use(kind: str) -> frozenset[str]:
    """The names in the Python code of such an op, which the op itself cannot have: def torch(x) would hide torch."""
    texts = (text for path, text in _texts(kind, project=False).items() if path.endswith(".py"))
    tokens = (token for text in texts for token in tokenize.generate_tokens(io.StringIO(text).readline))
    return frozenset(token.string for token in tokens if token.type == tokenize.NAME) - {PACKAGE, OP, MODULE}


@functools.cache
def _texts(kind: str, project: bool) -> Mapping[str, str]:
    layers = ["every_op", f"kinds/{kind}"]
    if kind != "pointwise":
        layers.insert(1, _SHARED)
    if project:
        layers.insert(0, "project")
    root = files(__package__.rpartition(".")[0]) / "templates"
    return {str(path): text for layer in layers for path, text in _files(root / layer, PurePosixPath())}


def _files(directory: Traversable, path: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
    for entry in directory.iterdir():
        # .gitignore is stored as dot_gitignore: git must not apply it there, and setuptools leaves hidden files out.
        name = re.sub("^dot_", ".", entry.name)
        if entry.is_file():
            yield path / name, entry.read_text(encoding="utf-8")
        elif name != "__pycache__":  # pip compiles installed modules, of templates too
            yield from _files(entry, path / name)
