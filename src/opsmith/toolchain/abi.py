"""What a library links against: torch's stable ABI, the C++ ABI of one torch, its Sleef, or no torch at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Abi = Literal["stable", "torch", "sleef", "plain"]

# The first torch whose stable ABI we use, 2.11: the library then loads into this torch and every later one.
STABLE_ABI = "0x020b000000000000"


@dataclass(frozen=True)
class AbiSettings:
    """``level`` is part of the cache key; the paths are this machine's, and not part of it."""

    level: str
    cflags: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    library_dirs: tuple[Path, ...] = ()
    libraries: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    """Libraries that the process has already loaded, and that the linker need not read (compile.stub)."""


def abi_settings(abi: Abi) -> AbiSettings:
    """Flags and directories for ``abi``, and its name in the cache key."""
    if abi == "plain":
        return AbiSettings("plain")
    if abi == "sleef":
        return AbiSettings("sleef", stubs=("libtorch_cpu.so",))
    import torch

    package = Path(torch.__file__).parent
    include_dirs = (package / "include", package / "include/torch/csrc/api/include")
    # No run path to torch's libraries: they are in the process already, and the dynamic linker finds them by name.
    library_dirs, libraries = (package / "lib",), ("torch", "torch_cpu", "c10")
    if abi == "stable":
        level = f"torch-stable-{STABLE_ABI}"
        cflags = (f"-DTORCH_TARGET_VERSION={STABLE_ABI}",)
        return AbiSettings(level, cflags, include_dirs, library_dirs, libraries)
    if abi == "torch":
        cxx11 = int(torch._C._GLIBCXX_USE_CXX11_ABI)
        level = f"torch-{torch.__version__}-cxx11abi{cxx11}"
        return AbiSettings(level, (f"-D_GLIBCXX_USE_CXX11_ABI={cxx11}",), include_dirs, library_dirs, libraries)
    raise ValueError(f"abi must be 'stable', 'torch', 'sleef' or 'plain', not {abi!r}")
