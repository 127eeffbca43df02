"""Errors of the toolchain: compilers, builds, the cache, loading."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from .base import LocatedError, OpsmithError, OpsmithWarning, indented, listed, tail


class ToolchainError(OpsmithError, RuntimeError):
    """The base of errors while finding a compiler, building, caching or loading."""


class ToolMissingError(ToolchainError):
    """The base of errors where this machine lacks a tool that a build needs, or has an unsuitable one."""


class CompilerNotFoundError(ToolMissingError):
    """No C++ compiler is installed, or CXX is not the name of one."""

    def __init__(self, looked_for: Sequence[str]) -> None:
        self.looked_for = tuple(looked_for)
        super().__init__(
            f"No C++ compiler was found; looked for {listed(looked_for)}.\n"
            "Install one:  apt-get install g++\n"
            "or set CXX to the path of g++ or clang++."
        )


class CompilerTooOldError(ToolMissingError):
    """The C++ compiler does not support C++20, which torch's headers need."""

    def __init__(self, compiler: object, minimum: str) -> None:
        super().__init__(
            f"{compiler} does not support C++20, which torch's headers need; {minimum} or newer does.\n"
            "Install a newer one:  apt-get install g++\n"
            "or set CXX to the path of a newer g++ or clang++."
        )


class NvccNotFoundError(ToolMissingError):
    """nvcc is not installed, or NVCC is not the name of one."""

    def __init__(self, looked_for: Sequence[str]) -> None:
        self.looked_for = tuple(looked_for)
        super().__init__(
            f"nvcc, the CUDA compiler, was not found; looked for {listed(looked_for)}.\n"
            "Install the CUDA toolkit (apt-get install cuda-toolkit-13, from NVIDIA's repository) and set CUDA_HOME.\n"
            "With USE_CUDA=0 in the environment, an extension is built without its CUDA sources.\n"
            "Kernels of opsmith.cuda_source need only NVRTC:  pip install 'opsmith[cuda13]'"
        )


class NvrtcNotFoundError(ToolMissingError):
    """NVRTC, which compiles CUDA kernels at run time, is not installed, or its Python binding is not."""

    def __init__(self, reason: str, extra: str) -> None:
        super().__init__(
            f"NVRTC, which compiles CUDA kernels, was not found: {reason}.\nInstall it:  pip install 'opsmith[{extra}]'"
        )


class CudaHeadersNotFoundError(ToolMissingError):
    """NVRTC is installed, but not the headers that it needs for half types."""

    def __init__(self, version: str, looked_in: Sequence[object], extra: str) -> None:
        super().__init__(
            f"NVRTC {version} was found, but no cuda_fp16.h of its major version; looked in {listed(looked_in)}.\n"
            f"Install the headers:  pip install 'opsmith[{extra}]'"
        )


class CudaVersionMismatchError(ToolMissingError):
    """The CUDA compiler has another major version than torch's CUDA, so its kernels might not load beside torch."""

    def __init__(self, tool: str, version: str, torch_cuda: str, remedy: str) -> None:
        super().__init__(
            f"{tool} is of CUDA {version}, but torch is built for CUDA {torch_cuda}: the major versions must agree.\n"
            f"{remedy}"
        )


class PythonHeadersNotFoundError(ToolMissingError):
    """Python.h is not installed."""

    def __init__(self, looked_in: Sequence[object]) -> None:
        super().__init__(
            f"Python.h was not found; looked in {listed(looked_in)}.\n"
            "Install Python's headers:  apt-get install python3-dev"
        )


class CompilerBrokenError(ToolchainError):
    """The base of errors where the compiler itself fails, rather than the source it was given."""

    remedy = (
        "Run the command above to check the compiler; reinstall it (apt-get install --reinstall g++),\n"
        "or set CXX to another one."
    )

    def __init__(self, compiler: object, command: Sequence[object], found: str, log: str = "") -> None:
        self.command = tuple(str(part) for part in command)
        self.log = log
        output = f"\nThe end of its output:\n{indented(tail(log, 10))}" if log.strip() else ""
        super().__init__(f"{compiler} {found}.{output}\nCommand: {shlex.join(self.command)}\n{self.remedy}")


class CompilerNotExecutableError(CompilerBrokenError):
    """The compiler's file cannot be executed."""

    remedy = (
        "Make it executable (chmod +x), reinstall it (apt-get install --reinstall g++), or set CXX (for nvcc: NVCC)\n"
        "to another one."
    )


class CompilerCrashedError(CompilerBrokenError):
    """The compiler was ended by a signal, or reports an internal error."""

    remedy = (
        "This is a fault of the compiler, not of the source. Try another compiler version (set CXX), or a lower\n"
        "optimisation level (-O1 among the extra compiler flags)."
    )


class CompilerOutOfMemoryError(CompilerBrokenError):
    """The compiler ran out of memory, or the kernel killed it because memory ran out."""

    remedy = "Free some memory, raise the container's memory limit, or run fewer builds at once; then try again."


class CompilerSilentError(CompilerBrokenError):
    """The compiler failed without a message."""


class CompilerNoOutputError(CompilerBrokenError):
    """The compiler reported success, but wrote no usable file."""


class CompileError(ToolchainError):
    """The compiler rejects the source.

    ``errors`` are the compiler's own, each at the author's line where one is known; ``log`` is its whole output.
    """

    def __init__(
        self, label: str, compiler: object, command: Sequence[object], errors: Sequence[object], log: str
    ) -> None:
        self.label = label
        self.command = tuple(str(part) for part in command)
        self.errors = tuple(errors)
        self.log = log
        shown = "\n\n".join(str(error) for error in self.errors[:3]) or tail(log, 15)
        more = len(self.errors) - 3
        rest = f"\n\n(and {more} more)" if more > 0 else ""
        super().__init__(
            f"{compiler} could not compile {label}:\n\n{indented(shown)}{rest}\n\n"
            f"Command: {shlex.join(self.command)}\n"
            "The compiler's whole output is in this error's `log`."
        )


class UnsupportedArchError(ToolMissingError, ValueError):
    """The installed CUDA compiler does not support a GPU architecture."""

    def __init__(self, arch: str, tool: str, supported: Sequence[str]) -> None:
        super().__init__(
            f"{tool} cannot compile for {arch!r}; it supports {listed(supported)}.\n"
            "Choose one of these, or install a CUDA version that supports this GPU."
        )


class NoSourceError(LocatedError, ToolchainError, ValueError):
    """A build has no source to compile."""

    def __init__(self, label: str) -> None:
        super().__init__(f"There is nothing to compile for {label}: give at least one source file.")


class SourceNotFoundError(LocatedError, ToolchainError, FileNotFoundError):
    """A source file does not exist or cannot be read."""

    def __init__(self, path: object, label: str, reason: str) -> None:
        super().__init__(
            f"The source file {path} of {label} cannot be read: {reason}.\n"
            "Relative paths start at the current directory; Path(__file__).parent / 'kernel.cpp' works from anywhere."
        )


class CacheError(ToolchainError):
    """Compiled code cannot be stored: neither in the cache directory nor in a temporary one."""

    def __init__(self, directory: object, reason: str, temporary: str | None = None) -> None:
        also = f", and no temporary directory could take its place: {temporary}" if temporary else ""
        super().__init__(
            f"The cache directory {directory} cannot be used: {reason}{also}.\n"
            "Set OPSMITH_CACHE_DIR to your own directory with free space."
        )


class CacheSecurityError(CacheError):
    """Another user can write to the cache, so nothing in it is executed."""

    def __init__(self, directory: object, reason: str, remedy: str) -> None:
        ToolchainError.__init__(
            self,
            f"The cache directory {directory} is refused: {reason}, and opsmith executes no code that another user "
            f"could have written.\n{remedy}",
        )


class CacheWarning(OpsmithWarning):
    """The base of warnings about the cache."""


class CacheFallbackWarning(CacheWarning):
    """The cache directory cannot be written, so what is built is kept in a temporary directory."""

    def __init__(self, directory: object, reason: str, temporary: object, lasts: bool = False) -> None:
        kept = (
            f"Your processes build into {temporary} instead. "
            if lasts
            else f"This process builds into {temporary}, which is removed when it ends: the next one builds again. "
        )
        super().__init__(
            f"The cache directory {directory} cannot be written: {reason}. {kept}"
            "Set OPSMITH_CACHE_DIR to your own directory with free space."
        )


class CorruptCacheEntryWarning(CacheWarning):
    """An entry of the cache is damaged; it is not loaded, but rebuilt."""

    def __init__(self, directory: object, label: str, reason: str) -> None:
        super().__init__(
            f"The cache entry {directory} of {label} is damaged ({reason}); it is rebuilt. "
            "If this happens again, check that disk."
        )


class DamagedPrebuiltWarning(CacheWarning):
    """A prebuilt file of a package is damaged; it is not loaded."""

    def __init__(self, directory: object, label: str, reason: str) -> None:
        super().__init__(
            f"The prebuilt files of {label} in {directory} are damaged ({reason}). They are not used; {label} is "
            "compiled here, where that is possible. Reinstall the package that they belong to."
        )


class LoadingFailedError(ToolchainError, ImportError):
    """A library ends the process that loads it, usually while it registers its operators."""

    def __init__(self, label: str, log: str) -> None:
        self.log = log
        super().__init__(
            f"{label} is built, but loading it ends the process, usually because torch refuses an operator that it "
            f"registers. The end of its output:\n{indented(tail(log, 12))}\n"
            "Fix what the output names, such as a schema, and build again."
        )


class LoadError(ToolchainError, ImportError):
    """The dynamic linker refuses a compiled library."""

    def __init__(self, path: object, message: str, built_for: str | None, running: str | None, remedy: str) -> None:
        versions = ""
        if built_for and built_for != running:
            versions = f"\nIt was built for torch {built_for}; this process runs torch {running or '(not imported)'}."
        super().__init__(f"{path} cannot be loaded: {message}{versions}\n{remedy}")


class TorchTooOldError(ToolchainError, ImportError):
    """The installed torch is older than opsmith, and the libraries of packages made with it, can work with."""

    def __init__(self, installed: str, oldest: str) -> None:
        super().__init__(
            f"torch {installed} is installed, and opsmith needs {oldest} or newer.\n"
            f"Install a newer one:  pip install 'torch>={oldest}'"
        )


class TorchReleaseError(ToolchainError):
    """The package index has no such torch for this kind of machine, or cannot be reached."""

    def __init__(self, requirement: str, message: str) -> None:
        super().__init__(
            f"pip finds no {requirement}, whose headers opsmith's C++ runtime is compiled against:\n"
            f"{indented(tail(message, 8))}\n"
            "Name an index that has it:  PIP_INDEX_URL, or pip config set global.index-url URL"
        )


class RuntimeReleaseError(ToolchainError):
    """A C++ runtime was built for another release of torch than the one that runs."""

    def __init__(self, path: object, built_for: str, running: str) -> None:
        super().__init__(
            f"{path} was built for torch {built_for}, and torch {running} is running.\n"
            "Reinstall opsmith:  pip install --force-reinstall --no-deps opsmith"
        )


class TorchNotPrebuiltWarning(OpsmithWarning):
    """This opsmith has no prebuilt C++ runtime for the installed torch, so calls go through Python."""

    def __init__(self, release: str, prebuilt: Sequence[str], can_build: bool) -> None:
        then = (
            "It is being compiled in the background for the next process."
            if can_build
            else "Install a C++ compiler (apt-get install g++), and it is compiled."
        )
        super().__init__(
            f"This opsmith has its C++ runtime prebuilt for torch {listed(prebuilt)}, and torch {release} is running: "
            f"calls go through Python, with the same results and at a higher cost. {then}\n"
            "A newer opsmith may have it prebuilt:  pip install --upgrade opsmith"
        )
