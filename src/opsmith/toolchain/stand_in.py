"""Empty libraries that stand for large ones while something is linked."""

from __future__ import annotations

import platform
from pathlib import Path

from .cache import cache_key, obtain
from .find import find_cxx
from .invoke import invoke


def stand_in(name: str) -> Path:
    """A library without symbols that the linker takes for the one of that name.

    What is linked against it needs the real one when it is loaded, and finds its symbols there. To link against
    libtorch_cpu.so itself takes 0.16 s, as long as to compile a small kernel: the linker reads all of its names.
    """
    flags = ("-shared", "-nostdlib", f"-Wl,-soname,{name}")
    key = cache_key(kind="stand-in", sources={}, flags=flags, arch=platform.machine(), abi="plain")

    def build(workdir: Path) -> dict[str, object]:
        return invoke(
            find_cxx(), [*flags, "-x", "c", "/dev/null", "-o", name], workdir=workdir, output=workdir / name, label=name
        )

    return obtain(key, build, label=f"a stand-in for {name}", filenames=[name]).path(name)
