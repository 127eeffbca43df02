"""docs/reference.md: every public name with the first sentence of its docstring, read from the package itself."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from typing import Any

import opsmith
from opsmith import cli, errors, ops

MODULES = {
    "opsmith": "Declare, check and time ops, and write kernels for them.",
    "opsmith.ops": "The shipped ops; torch sees them as `torch.ops.opsmith.*`.",
    "opsmith.nn": "Modules over the shipped ops.",
    "opsmith.testing": "For your tests; the fixture `opsmith_emulate` runs a test in the [emulator](emulator.md).",
    "opsmith.checks": "What `opsmith check` and its reproductions use ([check.md](check.md)).",
    "opsmith.benchmark": "What `opsmith bench` uses ([bench.md](bench.md)).",
}
ATTRIBUTES = {
    "name": "`namespace::name`, as torch knows the op.",
    "reference": "The function that the op was made of.",
    "samples_for": "The op's samples for a device and a dtype, as a list.",
    "schema": "The operator's schema, as torch prints it.",
}
"""What has no docstring of its own."""
ENVIRONMENT = {
    "OPSMITH_CACHE_DIR": "Where compiled code is kept; `~/.cache/opsmith` by default.",
    "OPSMITH_LINE_INFO": "`1` compiles CUDA kernels with line numbers, for profilers and compute-sanitizer.",
    "OPSMITH_OVERLAP": "`0` turns off programmatic dependent launch.",
    "OPSMITH_QUIET": "`1` hides the progress of builds.",
    "OPSMITH_RUNTIME": "`native` or `python` selects the tier; by default the C++ runtime where it is built.",
}
INTERNAL = {"OPSMITH_CHILD"}  # set by opsmith for its own child processes


def page() -> str:
    """The whole page."""
    parts = [
        "# Reference\n\nEvery public name, with one line each; `help(name)` has the rest.\n"
        "This page is generated from the package by `make readme-table`, and tested against it.\n"
    ]
    for name, purpose in MODULES.items():
        module = importlib.import_module(name)
        parts.append(f"## {name}\n\n{purpose}\n\n{_table((each, _first(module, each)) for each in module.__all__)}")
        if name == "opsmith":
            parts.append(f"## opsmith.Op\n\n{inspect.getdoc(opsmith.Op)}\n\n{_table(op_members())}")
    raised = [(each, _first(errors, each)) for each in errors.__all__ if isinstance(getattr(errors, each), type)]
    parts.append(f"## opsmith.errors\n\nAll derive from `OpsmithError` or `OpsmithWarning`.\n\n{_table(raised)}")
    parts.append(f"## Command line\n\n`opsmith VERB --help` lists the options.\n\n{_table(verbs())}")
    parts.append(f"## Environment variables\n\n{_table(ENVIRONMENT.items())}")
    return "\n".join(parts)


def op_members() -> Iterator[tuple[str, str]]:
    """(name, line) of each public attribute, property and method of an op; `source` is a generated op's alone."""
    kinds = [opsmith.Op, type(ops.mish)]
    found = {name: value for kind in kinds for name, value in vars(kind).items() if not name.startswith("_")}
    for name in sorted({*found, *ATTRIBUTES}):
        value = found.get(name)
        written = sentence(inspect.getdoc(value) if value is not None else None) or ATTRIBUTES.get(name, "")
        yield f"{name}()" if callable(value) else name, written


def verbs() -> Iterator[tuple[str, str]]:
    for module in pkgutil.iter_modules(cli.__path__):
        if not module.name.startswith("_"):
            command = importlib.import_module(f"{cli.__name__}.{module.name}").command
            yield f"opsmith {module.name}", sentence(inspect.getdoc(command))


def sentence(text: str | None) -> str:
    """The first sentence of a docstring, on one line."""
    first = " ".join((text or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.])\s+(?=[A-Z`{'\"])", first)[0]


def _first(module: Any, name: str) -> str:
    value = getattr(module, name)
    return sentence(value.reference.__doc__ if isinstance(value, opsmith.Op) else inspect.getdoc(value))


def _table(lines: Iterable[tuple[str, str]]) -> str:
    rows = [f"| `{name}` | {line.replace('|', chr(92) + '|')} |\n" for name, line in lines]
    return "".join(["| name | |\n|---|---|\n", *rows])
