"""An op in another process: the lines of Python that import it and its reference there, and running them."""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors.base import exception_line
from ..operator import child_process
from ..operator.adopted import Adopted
from ..operator.op import Op
from .outcome import Skipped

if TYPE_CHECKING:
    from .subject import Subject

SECONDS = 240.0
READY = "the op is imported"


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
        if path is None or self.shipped or path.startswith("<"):  # "<stdin>" is not a file
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


@dataclass(frozen=True)
class Finished:
    """`status` is the exit status, negative for a signal, None after a timeout."""

    status: int | None
    output: str
    errors: str
    limit: float = SECONDS

    @property
    def message(self) -> str:
        """Why it failed."""
        if self.status is None:
            return f"it has not ended after {self.limit:.0f} s"
        if self.status < 0:
            return f"it was ended by {signal.Signals(-self.status).name}"
        return exception_line(self.errors) or f"it ended with status {self.status}"


def in_new_process(
    subject: Subject, lines: Sequence[str], before: Sequence[str] = (), seconds: float = SECONDS
) -> Finished:
    """Runs `before`, the lines that bind `op` and `reference`, and `lines`. After a timeout, kills the process and its
    children. Raises Skipped if a new process cannot import the op."""
    if reason := not_importable(subject.op):
        raise Skipped(reason)
    text = "\n".join([*before, *setup(subject.op, in_child=True), f"print({READY!r}, flush=True)", *lines])
    environment = {**child_process.environment(), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # its own process group, so that its children are killed with it
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    except BaseException as stopped:  # Ctrl-C, too: the new process has a session of its own
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        if not isinstance(stopped, subprocess.TimeoutExpired):
            raise
        return Finished(None, output, errors, seconds)
    finished = Finished(process.returncode, output, errors)
    if READY not in output:
        if "UnknownOpError" not in finished.message:
            raise Skipped(f"a new process cannot import it: {finished.message}")
        module = getattr(subject.op, "__module__", "")
        raise Skipped(f"importing {module} in a new process does not declare it: is it declared inside a function?")
    return finished
