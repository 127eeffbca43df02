"""Compiling a CUDA source for an architecture: its plain kernels together, an instance of a template for itself."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import AmbiguousKernelError, KernelNotFoundError, OpsmithError
from ...toolchain.nvrtc import CudaModule, CudaProgram
from .attributes import Attributes, from_build
from .origin import Snapshot, resolved
from .plan import Plan
from .types import PRELUDE, Variable, kernel_expressions, parameter_types, variable, variable_expressions

INCLUDE_DIRECTORY = Path(__file__).parents[2] / "include"

_INCLUDE_OPTION = re.compile(r"^(?:-I|--include-path=)(.*)$")
_PRE_INCLUDE = re.compile(r"^(?:--?include|--pre-include)=(.*)$")
_ARCH_OPTION = re.compile(r"^(?:--?gpu-architecture|-arch)=(.*)$")


class Settings:
    """How a source is compiled; header directories and the architecture are taken out of the options."""

    def __init__(
        self,
        python_file: str,
        options: Sequence[str],
        include_dirs: Sequence[str | os.PathLike[str]],
        defines: Mapping[str, object],
    ) -> None:
        directories = list(include_dirs)
        self.arch: str | None = None
        self.pre_included: list[str] = []
        rest: list[str] = []
        remaining = iter(map(str, options))
        for option in remaining:
            if option in ("-I", "--include-path", "-arch", "--gpu-architecture", "-include", "--pre-include"):
                option = f"{option}={next(remaining, '')}"
            if option.startswith("-I="):
                option = option.replace("=", "", 1)
            if found := _INCLUDE_OPTION.match(option):
                directories.append(found[1])
            elif found := _ARCH_OPTION.match(option):
                self.arch = found[1]
            else:
                if found := _PRE_INCLUDE.match(option):
                    self.pre_included.append(found[1])
                rest.append(option)
        self.options = [*rest, *(_define(name, value) for name, value in defines.items())]
        self.include_dirs = [*(Path(resolved(each, python_file)) for each in directories), INCLUDE_DIRECTORY]


def _define(name: str, value: object) -> str:
    if value is None:
        return f"--define-macro={name}"
    return f"--define-macro={name}={int(value) if isinstance(value, bool) else value}"


@dataclass(frozen=True)
class Build:
    """A cubin with the compiler's description of it."""

    module: CudaModule
    arch: str
    snapshot: Snapshot

    @property
    def path(self) -> Path:
        return self.module.path

    @functools.cached_property
    def cubin(self) -> bytes:
        return self.module.path.read_bytes()

    @functools.cached_property
    def constants(self) -> dict[str, Variable]:
        names = self.module.names
        return {name: variable(name, names) for name in self.snapshot.found.constants if f"&{name}" in names}

    def symbol(self, spelling: str) -> str:
        self.require(spelling)
        return self.module.names[spelling]

    def plan(self, spelling: str) -> Plan:
        self.require(spelling)
        return Plan(spelling, parameter_types(spelling, self.module.names), self.snapshot)

    def attributes(self, spelling: str) -> Attributes:
        return from_build(self.symbol(spelling), self.module.log, self.cubin)

    def require(self, spelling: str) -> None:
        """Raises an error that gives the reason where the compiler has not found a kernel of that spelling."""
        if spelling not in self.module.names:
            message = self.module.refused.get(_kernel_group(spelling), "it is not there")
            raise refusal(spelling, message, self.snapshot)

    @property
    def spellings(self) -> list[str]:
        """The kernels in it."""
        return [name for name in self.module.names if kernel_expressions(name)[1] in self.module.names]


def build(snapshot: Snapshot, settings: Settings, arch: str, spelling: str | None) -> Build:
    """All plain kernels, or the one of that spelling. Raises CompileError and the errors of finding NVRTC."""
    origin = snapshot.origin
    found = snapshot.found
    plain = [each.name for each in found.kernels.values() if each.template is None]
    wanted = plain if spelling is None else [spelling]
    expressions = {_kernel_group(name): kernel_expressions(name) for name in wanted}
    expressions |= {f"constant {name}": variable_expressions(name) for name in dict.fromkeys(found.constants)}
    line = origin.line_of_text()
    program = CudaProgram(
        snapshot.text,
        arch=arch,
        options=settings.options,
        include_dirs=settings.include_dirs,
        name=origin.name,
        label=origin.label if spelling is None else f"{spelling} of {origin.label}",
        expressions=expressions,
        prelude=PRELUDE,
        line=None if line is None else (line, os.path.abspath(origin.python_file)),
        shown=None if origin.path is not None else origin.label,
    )
    return Build(program.compile(), arch, snapshot)


def _kernel_group(spelling: str) -> str:
    return f"kernel {spelling}"


def refusal(spelling: str, message: str, snapshot: Snapshot) -> OpsmithError:
    """The compiler's message about a name that it does not accept, as an error of ours."""
    base, _, arguments = spelling.partition("<")
    text, where = snapshot.found.kernels.get(base), snapshot.origin.label
    declared = snapshot.declared("__global__", base)
    if "overloaded function" in message:
        what = f"is ambiguous: the source has several kernels named {spelling}"
        return AmbiguousKernelError(
            spelling, where, what, "Give each a different name, or make them one template.", declared
        )
    if "function template" in message:
        taken = f"template <{', '.join(text.template)}>" if text is not None and text.template else "the template"
        return not_an_instance(spelling, snapshot, f"is not an instance of {taken}")
    unknown = re.search(r'(?:identifier|name followed by "::"|has no member) "([^"]*)"', message)
    missing = unknown is not None and unknown[1].rpartition("::")[2] in base.split("::")
    if arguments and not missing and "address of a non-" not in message:
        return not_an_instance(spelling, snapshot, f"cannot be compiled: {message}")
    if text is not None:
        others = [each for each in listing(snapshot) if each.partition("<")[0] != base]
        note = f"The compiler does not reach the one at {declared.partition(': ')[0]}: is it inside an #if?"
        return KernelNotFoundError(spelling, where, others, note)
    return KernelNotFoundError(spelling, where, listing(snapshot))


def not_an_instance(spelling: str, snapshot: Snapshot, what: str) -> AmbiguousKernelError:
    """The error for template arguments that do not fit, with an example of some that do."""
    base = spelling.partition("<")[0]
    text = snapshot.found.kernels.get(base)
    remedy = f"Write cu[{(text.example if text is not None else base)!r}], for example."
    return AmbiguousKernelError(spelling, snapshot.origin.label, what, remedy, snapshot.declared("__global__", base))


def listing(snapshot: Snapshot) -> list[str]:
    """A source's kernels as messages list them: templates with their parameters."""
    return [_listed(each.name, each.template) for each in snapshot.found.kernels.values()]


def _listed(name: str, template: Iterable[str] | None) -> str:
    return name if template is None else f"{name}<{', '.join(each.partition('=')[0].strip() for each in template)}>"
