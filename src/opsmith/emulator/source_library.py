"""A CUDA source's text compiled for the emulator: a library of its kernels, cached by content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import CompileError, UnsupportedFeatureError
from ..kernels.cuda_source.text import KernelText
from ..toolchain import cache_key, find_cxx, obtain
from ..toolchain.invoke import invoke
from . import entries
from .assembly import OPSMITH_INCLUDE, WRAPPED, assemble, own_flags, own_headers
from .library import Library, digest, runtime_path
from .mirror import Mirror, add_headers, inside
from .translate import translated


@dataclass(frozen=True)
class Source:
    """A text to compile: what errors call it, the file and line its first line has, where headers are looked for."""

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

    What of them the compiler does not find is left out, and `Library.refusal` tells why. Raises CompileError with the
    author's lines, and UnsupportedFeatureError.
    """
    body, dynamic_names = translated(source.text, source.label, source.line)
    before = "".join(f'#include "{header}"\n' for header in source.pre_included)

    def text(refused: Mapping[entries.Entry, str] | None = None) -> str:
        entered = entries.text(spellings, constants, kernels, refused)
        return f'#line 1 "<pre-included>"\n{before}#line {source.line} "{source.file}"\n{body}\n{entered}'

    searched = [*([source.directory] if source.directory else []), *source.include_dirs]
    mirror = Mirror(source.file)
    add_headers(mirror, before + source.text, source.directory, source.include_dirs, [OPSMITH_INCLUDE])
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
        # The originals come after: a header that a macro names is in no tree.
        directories = [*(inside(workdir, each) for each in searched), *searched, OPSMITH_INCLUDE]
        refused: dict[entries.Entry, str] = {}
        while True:
            (workdir / "kernels.cpp").write_text(text(refused))
            try:
                assemble(
                    workdir / "kernels.cpp", workdir / "kernels.s", checks, source.macros, directories,
                    workdir=workdir, label=source.label, own_directories=[Path(source.file).parent, *searched],
                )  # fmt: skip
                break
            except UnsupportedFeatureError as error:
                raise mirror.refusals.get(error.feature, error) from None
            except CompileError as error:
                more = entries.refused(error.errors)
                if not more.keys() - refused.keys():
                    raise
                refused |= more
        return invoke(
            find_cxx(), ["-shared", "kernels.s", "-o", name, *(WRAPPED if checks else ()), str(linked)],
            workdir=workdir, output=name, label=source.label,
        )  # fmt: skip

    path = obtain(key, build, label=f"{source.label} for the emulator", filenames=[name]).path(name)
    return Library(path, tuple(spellings), tuple(constants), (*dynamic_names, *mirror.dynamic_names))
