"""The lines of Python that import an op and its reference in another process."""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ..operator.adopted import Adopted
from ..operator.op import Op


def setup(op: Op | Adopted, in_child: bool = False) -> list[str]:
    """The lines that bind torch, opsmith, `op` and `reference`. `in_child`: for a child process of a check, which
    imports the op's module only up to the line where the parent started the check."""
    if isinstance(op, Op):
        if op.__module__.startswith("opsmith.ops."):
            return ["import torch, opsmith", f"op = opsmith.ops.{op.name.partition('::')[2]}", "reference = op.inline"]
        first, *imports = _imported([_Module(op.__module__)])
        if in_child:
            head = ["from opsmith.operator.child_process import until_parent_call", "with until_parent_call():"]
            imports = head + [f"    {line}" for line in (*imports, "pass")]
        return [first, *imports, f'op = opsmith.get("{op.name}")', "reference = op.inline"]
    homes = {"reference": op.reference_home}
    if op.samples_home is not None:
        homes["samples"] = op.samples_home
    names = dict.fromkeys([*op.libraries, *(module for module, _ in homes.values())])
    modules = {name: _Module(name) for name in names}
    return [
        *_imported(modules.values()),
        *(_bound(name, modules[module], function) for name, (module, function) in homes.items()),
        f"op = opsmith.checks.adopt(torch.ops.{op.qualified_name}, {', '.join(homes)})",
    ]


def not_importable(op: Op | Adopted) -> str:
    """Why no new process can import the op; '' if one can."""
    if isinstance(op, Op) and _Module(op.__module__).called == "__main__":
        return "it is declared in a notebook or an interactive session, which no other process can import"
    return ""


def _bound(name: str, module: _Module, function: str) -> str:
    if not all(part.isidentifier() for part in function.split(".")):
        return f"{name} = ...  # {function} of {module.called}, which cannot be imported by name: put it here"
    return f"{name} = {module.member(function)}"


def _imported(modules: Iterable[_Module]) -> list[str]:
    others = [module for module in modules if not module.shipped]
    first = ["runpy"] if any(module.file for module in others) else []
    first += ["sys"] if any(module.root for module in others) else []
    first += ["torch", "opsmith"] + (["opsmith.ops"] if any(module.shipped for module in modules) else [])
    roots = dict.fromkeys(module.root for module in others if module.root)
    return [
        f"import {', '.join(first)}",
        *(f"sys.path.insert(0, {root!r})" for root in roots),
        *(module.line for module in others),
    ]


class _Module:
    """How another process can import a module that is loaded here."""

    def __init__(self, name: str) -> None:
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        path = getattr(module, "__file__", None)
        self.shipped = name.split(".")[0] == "opsmith"
        self.called = spec.name if name == "__main__" and spec is not None else name
        self.root = ""
        """The directory to add to sys.path, if needed."""
        self.file = ""
        """The file to run, where `import` would not find it."""
        if path is None or self.shipped or path.startswith("<"):  # "<stdin>" is no file
            return
        file = Path(path).resolve()
        if self.called == "__main__":
            self.called = file.stem
        if any(place in file.parents for place in installed()):
            return
        parts = self.called.split(".")
        held = file.parent if file.name == "__init__.py" else file.with_suffix("")
        importable = list(held.parts[-len(parts) :]) == parts and all(part.isidentifier() for part in parts)
        if importable and parts[0] not in sys.stdlib_module_names:
            self.root = str(held.parents[len(parts) - 1])
        else:
            self.root, self.file = str(file.parent), str(file)

    @property
    def line(self) -> str:
        if self.called == "__main__":
            return "# first run the code that declares it in your notebook or session"
        return f"{self._variable} = runpy.run_path({self.file!r})" if self.file else f"import {self.called}"

    def member(self, function: str) -> str:
        return f"{self._variable}[{function!r}]" if self.file else f"{self.called}.{function}"

    @property
    def _variable(self) -> str:
        stem = Path(self.file).stem
        return "from_" + "".join(each if each.isalnum() and each.isascii() else "_" for each in stem)


@cache
def installed() -> list[Path]:
    """The directories where every Python process of this installation looks for modules."""
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return [Path(path).resolve() for path in {*paths, *site.getsitepackages(), site.getusersitepackages()} if path]
