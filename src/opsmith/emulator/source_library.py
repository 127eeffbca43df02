"""Compile a CUDA source's text for the emulator: a library of its kernels, cached by content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..cuda_text.declarations import KernelText
from ..errors import CompileError
from ..toolchain import cache_key, find_cxx, obtain
from ..toolchain.invoke import invoke
from . import entries
from .assembly import ASSEMBLY, OPSMITH_INCLUDE, WRAPPED, assemble, own_flags, own_headers
from .library import Library, digest, runtime_path
from .mirror import Mirror
from .translate import translated


@dataclass(frozen=True)
class Source:
    """A text to compile: its name in errors, the file and line of its first line, the directories of its headers."""

    text: str
    label: str
    file: str
    line: int = 1
    include_dirs: tuple[Path, ...] = ()
    macros: tuple[str, ...] = ()  # -DNAME=VALUE and -UNAME
    pre_included: tuple[str, ...] = ()  # headers that are included before its first line
    directory: Path | None = None  # of quoted headers


def compile_library(
    source: Source,
    spellings: Sequence[str],
    checks: bool,
    constants: Sequence[str] = (),
    kernels: Mapping[str, KernelText] | None = None,
) -> Library:
    """The library of these kernels; `kernels` has them as their author wrote them.

    Those that the compiler does not find are left out, and `Library.refusal` has the reason. Raises CompileError with
    the author's lines, and UnsupportedFeatureError.
    """
    body, dynamic_names = translated(source.text, source.label, source.line)
    before = "".join(f'#include "{header}"\n' for header in source.pre_included)

    def text(refused: Mapping[entries.Entry, str] | None = None) -> str:
        entered = entries.text(spellings, constants, kernels, refused)
        return f'#line 1 "<pre-included>"\n{before}#line {source.line} "{source.file}"\n{body}\n{entered}'

    mirror = Mirror(source.file, source.directory, source.include_dirs, [OPSMITH_INCLUDE])
    mirror.add_headers(before + source.text)
    key = cache_key(
        kind="emulated",
        sources={"text": text(), **mirror.contents, **own_headers()},
        flags=[*own_flags(checks), *source.macros],
        arch="host",
        abi=f"emulator {digest()}",
    )
    name = "kernels.so"

    def build(workdir: Path) -> dict[str, object]:
        linked = runtime_path()
        mirror.write(workdir)
        refused: dict[entries.Entry, str] = {}
        while True:
            (workdir / "kernels.cpp").write_text(text(refused))
            try:
                assemble(
                    workdir / "kernels.cpp", checks, source.macros, mirror, workdir=workdir, label=source.label
                )  # fmt: skip
                break
            except CompileError as error:
                more = entries.refused(error.errors)
                if not more.keys() - refused.keys():
                    raise
                refused |= more
        command = ["-shared", ASSEMBLY, "-o", name, *(WRAPPED if checks else ()), str(linked)]
        return invoke(find_cxx(), command, workdir=workdir, output=name, label=source.label)

    path = obtain(key, build, label=f"{source.label} for the emulator", filenames=[name]).path(name)
    return Library(path, tuple(spellings), tuple(constants), (*dynamic_names, *mirror.dynamic_names))
