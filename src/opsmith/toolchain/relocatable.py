"""Objects for one library that holds the same code compiled several times, for several levels of processors.

An inline function that two objects define is linked once, whichever level it was compiled for: on an older processor
the copy for a newer one would crash. So the objects of each level are merged into one, and only the functions that it
is asked to export stay visible.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import ToolMissingError
from . import process
from .cache import cache_key, obtain
from .compile import contents, host_arch, include_flags, prefix_maps
from .elf import weaken_unique
from .find import find_cxx
from .invoke import invoke

_SOURCE, _ASSEMBLY, _OBJECT, _LOOSE = "kernel.cpp", "images.s", "kernel.o", "merged.o"


def compile_text(text: str, *, flags: Sequence[str], include_dirs: Sequence[Path], label: str) -> Path:
    """The object of a generated C++ source."""
    flags = ["-c", "-fPIC", "-fvisibility=hidden", *flags]
    key = cache_key(
        kind="text-object",
        sources=contents([], {_SOURCE: text}, include_dirs, label),
        flags=flags,
        arch=host_arch(flags),
        abi="plain",
    )

    def build(workdir: Path) -> dict[str, object]:
        (workdir / _SOURCE).write_text(text)
        arguments = [*flags, *prefix_maps(include_dirs), *include_flags(include_dirs, ()), _SOURCE, "-o", _OBJECT]
        return invoke(find_cxx(), arguments, workdir=workdir, output=_OBJECT, label=label)

    return obtain(key, build, label=label, filenames=[_OBJECT]).path(_OBJECT)


def assemble(text: str, files: Mapping[str, Path], label: str) -> Path:
    """The object of an assembler source that includes files under these names."""
    sources: dict[str, str | bytes] = {name: path.read_bytes() for name, path in files.items()}
    key = cache_key(
        kind="assembled-object", sources={**sources, "": text}, flags=[], arch=platform.machine(), abi="plain"
    )

    def build(workdir: Path) -> dict[str, object]:
        (workdir / _ASSEMBLY).write_text(text)
        for name, path in files.items():
            (workdir / name).symlink_to(path)
        return invoke(find_cxx(), ["-c", _ASSEMBLY, "-o", _OBJECT], workdir=workdir, output=_OBJECT, label=label)

    return obtain(key, build, label=label, filenames=[_OBJECT]).path(_OBJECT)


def merged(name: str, objects: Sequence[Path], exported: Mapping[str, str], label: str) -> Path:
    """One object of several, in which only these functions are visible, under new names."""
    filename = f"{name}.o"
    ordered = sorted(exported.items())
    key = cache_key(
        kind="merged-object 2",
        sources=contents(objects, {}, (), label),
        flags=[filename, *(f"{old}={new}" for old, new in ordered)],
        arch=host_arch(()),
        abi="plain",
    )

    def build(workdir: Path) -> dict[str, object]:
        # Groups are resolved here: the final link would keep one copy of each inline function again.
        arguments = ["-r", "-nostdlib", "-Wl,--force-group-allocation", *map(str, objects), "-o", _LOOSE]
        facts = invoke(find_cxx(), arguments, workdir=workdir, output=_LOOSE, label=label)
        image = bytearray((workdir / _LOOSE).read_bytes())
        weaken_unique(image)
        (workdir / _LOOSE).write_bytes(image)
        (workdir / "names").write_text("".join(f"{old} {new}\n" for old, new in ordered))
        (workdir / "kept").write_text("".join(f"{new}\n" for _, new in ordered))
        _run_objcopy(["--redefine-syms=names", _LOOSE], workdir, label)
        _run_objcopy(["--keep-global-symbols=kept", _LOOSE, filename], workdir, label)
        return facts

    return obtain(key, build, label=label, filenames=[filename]).path(filename)


def _run_objcopy(arguments: Sequence[str], workdir: Path, label: str) -> None:
    found = shutil.which("objcopy")
    if found is None:
        raise ToolMissingError(f"objcopy is missing, which {label} is built with. Install binutils.")
    outcome = process.run([found, *arguments], cwd=workdir)
    if outcome.status != 0:
        raise ToolMissingError(f"objcopy failed on {label}: {outcome.output.strip()}")
