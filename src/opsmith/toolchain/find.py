"""Find the tools: a C++ compiler, nvcc, NVRTC with its headers, and Python's headers.

What is found is cached for the life of the process; a failure is not, so that a notebook can install what is missing
and try again. ``forget()`` clears the cache, for tests and after changing CXX, NVCC or CUDA_HOME.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .._lazy import import_by_name
from ..errors import (
    CompilerBrokenError,
    CompilerCrashedError,
    CompilerNotFoundError,
    CompilerSilentError,
    CompilerTooOldError,
    CudaHeadersNotFoundError,
    CudaVersionMismatchError,
    NvccNotFoundError,
    NvrtcNotFoundError,
    PythonHeadersNotFoundError,
)
from .process import run

CompilerKind = Literal["gcc", "clang", "nvcc"]

# The first releases that accept -std=c++20.
_OLDEST_WITH_CXX20 = {"gcc": 10, "clang": 10}
_DEFAULT_CUDA_MAJOR = 13


@dataclass(frozen=True)
class Compiler:
    """A compiler that printed its version. ``arguments`` come from a CXX such as "ccache g++"."""

    path: Path
    kind: CompilerKind
    version: str
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        return [str(self.path), *self.arguments]

    def __str__(self) -> str:
        return f"{shlex.join(self.command)} ({self.kind} {self.version})"


@dataclass(frozen=True)
class Nvrtc:
    """NVRTC, and the directories of the CUDA headers (cuda_fp16.h, CCCL) of the same major version."""

    path: Path
    version: str
    include_dirs: tuple[Path, ...]

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def __str__(self) -> str:
        return f"NVRTC {self.version}"


@functools.cache
def find_cxx() -> Compiler:
    """The C++ compiler: the one in CXX, else the first of c++, g++ and clang++ on PATH that works.

    Raises CompilerNotFoundError, CompilerTooOldError, or a CompilerBrokenError.
    """
    if named := os.environ.get("CXX", "").strip():
        # The compiler that the user asked for is used or refused, never silently replaced.
        program, *arguments = shlex.split(named)
        path = shutil.which(program)
        if path is None and not os.path.exists(program):
            raise CompilerNotFoundError([f"CXX={named}"])
        return _require_cxx20(_identify(path or os.path.abspath(program), tuple(arguments)))
    names = ("c++", "g++", "clang++")
    first_failure: CompilerBrokenError | CompilerTooOldError | None = None
    for path in filter(None, map(shutil.which, names)):
        try:
            return _require_cxx20(_identify(path))
        except (CompilerBrokenError, CompilerTooOldError) as failure:
            first_failure = first_failure or failure
    raise first_failure or CompilerNotFoundError([f"{name} on PATH" for name in names])


@functools.cache
def find_nvcc() -> Compiler:
    """CUDA's compiler: the one in NVCC, else nvcc under $CUDA_HOME, $CUDA_PATH, on PATH, under /usr/local/cuda."""
    if named := os.environ.get("NVCC", "").strip():
        path = shutil.which(named)
        if path is None and not os.path.exists(named):
            raise NvccNotFoundError([f"NVCC={named}"])
        return _identify(path or os.path.abspath(named))
    looked_for = []
    for place in (*_environment_toolkits(), None, Path("/usr/local/cuda")):
        looked_for.append(f"{place}/bin/nvcc" if place else "nvcc on PATH")
        path = shutil.which("nvcc", path=str(place / "bin") if place else None)
        if path:
            return _identify(path)
    raise NvccNotFoundError(looked_for)


@functools.cache
def nvcc_include_dirs() -> tuple[Path, ...]:
    """Where nvcc itself finds CUDA's headers (it may be a wrapper): for C++ files beside the CUDA files."""
    output = run([*find_nvcc().command, "--dryrun", "-x", "cu", "-c", os.devnull], timeout=60).output
    found = re.findall(r'"?-(?:I|isystem"?)\s*"?([^"\s]+)"?', "".join(re.findall(r"INCLUDES=(.*)\n", output)))
    return tuple(dict.fromkeys(Path(os.path.normpath(directory)) for directory in found))


@functools.cache
def nvcc_architectures() -> tuple[str, ...]:
    """("sm_75", ...): what nvcc can compile for; empty where it does not list them."""
    return tuple(
        re.findall(r"^sm_\d+", run([*find_nvcc().command, "--list-gpu-code"], timeout=60).output, re.MULTILINE)
    )


@functools.cache
def find_nvrtc() -> Nvrtc:
    """NVRTC through its Python binding, with headers of its own major version; works without a GPU.

    Raises NvrtcNotFoundError, CudaHeadersNotFoundError, or CudaVersionMismatchError when torch is built for CUDA of
    another major version.
    """
    torch_cuda = torch_cuda_version()
    extra = f"cuda{torch_cuda.split('.')[0] if torch_cuda else _DEFAULT_CUDA_MAJOR}"
    try:
        pathfinder = import_by_name("cuda.pathfinder")
        nvrtc = nvrtc_binding()
    except ImportError as error:
        raise NvrtcNotFoundError(f"the package cuda-bindings cannot be imported ({error})", extra) from error
    try:
        path = Path(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path or "libnvrtc.so")
        _, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # the binding's own classes differ from release to release
        raise NvrtcNotFoundError(f"libnvrtc.so cannot be loaded ({str(error).splitlines()[0]})", extra) from error
    version = f"{major}.{minor}"
    if torch_cuda:
        require_cuda_major("NVRTC", version, torch_cuda, f"Install the matching one:  pip install 'opsmith[{extra}]'")
    candidates = list(dict.fromkeys(_include_candidates(path, major)))
    fp16 = _first_holding("cuda_fp16.h", candidates, major)
    if fp16 is None:
        raise CudaHeadersNotFoundError(version, candidates, extra)
    # cooperative_groups.h needs CCCL's headers; CUDA 13 keeps them one folder down, and kernels without it need none.
    with_cccl = [path for include in candidates for path in (include / "cccl", include)]
    cccl = _first_holding("cuda/std/type_traits", with_cccl)
    return Nvrtc(path, version, tuple(dict.fromkeys(filter(None, (fp16, cccl)))))


@functools.cache
def python_headers() -> Path:
    """The directory that holds Python.h of the running interpreter; raises PythonHeadersNotFoundError."""
    directories = [Path(sysconfig.get_path(kind)) for kind in ("include", "platinclude")]
    for directory in directories:
        if (directory / "Python.h").is_file():
            return directory
    raise PythonHeadersNotFoundError(list(dict.fromkeys(directories)))


def forget() -> None:
    """Forget every tool found so far."""
    for function in (find_cxx, find_nvcc, nvcc_include_dirs, nvcc_architectures, find_nvrtc, python_headers):
        function.cache_clear()


def nvrtc_binding() -> Any:
    """NVRTC's functions in Python. Imported by name, since it carries no types; and only here, since it takes 0.1 s."""
    return import_by_name("cuda.bindings.nvrtc")


def torch_cuda_version() -> str | None:
    """The CUDA version torch is built for ("13.0"), or None for a CPU build."""
    import torch

    return torch.version.cuda


def require_cuda_major(tool: str, version: str, torch_cuda: str, remedy: str) -> None:
    """Raise CudaVersionMismatchError unless both are of the same major version."""
    if version.split(".")[0] != torch_cuda.split(".")[0]:
        raise CudaVersionMismatchError(tool, version, torch_cuda, remedy)


def _identify(path: str, arguments: tuple[str, ...] = ()) -> Compiler:
    command = [path, *arguments, "--version"]
    try:
        outcome = run(command, timeout=60)
    except subprocess.TimeoutExpired:
        raise CompilerBrokenError(path, command, "did not print its version within a minute") from None
    if outcome.signal_name:
        what = f"was ended by {outcome.signal_name} when asked for its version"
        raise CompilerCrashedError(path, command, what, outcome.output)
    if outcome.status != 0:
        what = f"failed with exit status {outcome.status} when asked for its version"
        raise CompilerSilentError(path, command, what, outcome.output)
    first_line = (outcome.output.splitlines() or [""])[0]
    if release := re.search(r"Cuda compilation tools.*\bV([\d.]+)", outcome.output):
        return Compiler(Path(path), "nvcc", release[1], arguments)
    kind: CompilerKind = "clang" if "clang" in outcome.output else "gcc"
    # "g++ (Debian 12.2.0-14+deb12u1) 12.2.0": the distribution's own number is in brackets, before the compiler's.
    version = re.search(r"(?:clang|gcc|[gc]\+\+).*?\b(\d+(?:\.\d+)+)", re.sub(r"\([^)]*\)", "", first_line))
    return Compiler(Path(path), kind, version[1] if version else "of unknown version", arguments)


def _require_cxx20(compiler: Compiler) -> Compiler:
    oldest = _OLDEST_WITH_CXX20.get(compiler.kind)
    major = re.match(r"\d+", compiler.version)
    if oldest and major and int(major[0]) < oldest:
        raise CompilerTooOldError(compiler, f"{compiler.kind} {oldest}")
    return compiler


def _environment_toolkits() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield Path(value)


def _include_candidates(nvrtc: Path, major: int) -> Iterator[Path]:
    """Where CUDA headers may be: beside NVRTC, in NVIDIA's wheels of either layout, in an installed toolkit."""
    yield nvrtc.parent.parent / "include"
    for packages in _wheel_roots():
        yield packages / f"cu{major}" / "include"  # wheels since CUDA 13
        yield packages / "cuda_runtime" / "include"  # wheels up to CUDA 12
        yield packages / "cuda_cccl" / "include"
    for toolkit in (*_environment_toolkits(), Path("/usr/local/cuda")):
        yield toolkit / "include"


def _wheel_roots() -> list[Path]:
    nvidia = importlib.util.find_spec("nvidia")
    found = list(nvidia.submodule_search_locations or ()) if nvidia else []
    return [Path(location) for location in (*found, *(os.path.join(entry, "nvidia") for entry in sys.path if entry))]


def _first_holding(header: str, directories: Iterable[Path], major: int | None = None) -> Path | None:
    for directory in directories:
        if (directory / header).is_file() and (major is None or _headers_major(directory) == major):
            return directory
    return None


def _headers_major(directory: Path) -> int | None:
    """13 for a cuda.h that says ``#define CUDA_VERSION 13040``."""
    try:
        version = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", (directory / "cuda.h").read_text(errors="replace"))
    except OSError:
        return None
    return int(version[1]) // 1000 if version else None
