"""The toolchain: compilers, the cache, builds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from .base import OpsmithError, OpsmithWarning, indented, listed, tail


class ToolchainError(OpsmithError, RuntimeError):
    """The base of what can go wrong while finding a compiler, building, caching or loading."""


class ToolMissingError(ToolchainError):
    """The base of errors where this machine has no tool, or none that fits, for a build: no fault of the source."""


class CompilerNotFoundError(ToolMissingError):
    """No C++ compiler is installed, or CXX names none."""

    def __init__(self, looked_for: Sequence[str]) -> None:
        self.looked_for = tuple(looked_for)
        super().__init__(
            f"No C++ compiler was found; looked for {listed(looked_for)}.\n"
            "Install one:  apt-get install g++\n"
            "or set CXX to the path of g++ or clang++."
        )


class CompilerTooOldError(ToolMissingError):
    """The C++ compiler does not know C++20, which torch's headers are written in."""

    def __init__(self, compiler: object, minimum: str) -> None:
        super().__init__(
            f"{compiler} does not know C++20, which torch's headers are written in; {minimum} or newer does.\n"
            "Install a newer one:  apt-get install g++\n"
            "or set CXX to the path of a newer g++ or clang++."
        )


class NvccNotFoundError(ToolMissingError):
    """CUDA's compiler is not installed, or NVCC names none."""

    def __init__(self, looked_for: Sequence[str]) -> None:
        self.looked_for = tuple(looked_for)
        super().__init__(
            f"nvcc, the CUDA compiler, was not found; looked for {listed(looked_for)}.\n"
            "Install the CUDA toolkit (apt-get install cuda-toolkit-13, from NVIDIA's repository) and set CUDA_HOME.\n"
            "An extension is built without its CUDA sources where the environment says USE_CUDA=0.\n"
            "Kernels given to opsmith.cuda_source need no nvcc, only NVRTC:  pip install 'opsmith[cuda13]'"
        )


class NvrtcNotFoundError(ToolMissingError):
    """NVRTC, which compiles CUDA kernels at run time, or its Python binding is not installed."""

    def __init__(self, reason: str, extra: str) -> None:
        super().__init__(
            f"NVRTC, which compiles CUDA kernels, was not found: {reason}.\nInstall it:  pip install 'opsmith[{extra}]'"
        )


class CudaHeadersNotFoundError(ToolMissingError):
    """NVRTC is there, but not the headers it needs for half types."""

    def __init__(self, version: str, looked_in: Sequence[object], extra: str) -> None:
        super().__init__(
            f"NVRTC {version} was found, but no cuda_fp16.h of its major version; looked in {listed(looked_in)}.\n"
            f"Install the headers:  pip install 'opsmith[{extra}]'"
        )


class CudaVersionMismatchError(ToolMissingError):
    """A CUDA compiler of another major version than torch's CUDA: its kernels might not load into torch's process."""

    def __init__(self, tool: str, version: str, torch_cuda: str, remedy: str) -> None:
        super().__init__(
            f"{tool} is of CUDA {version}, but torch is built for CUDA {torch_cuda}: the major versions must agree.\n"
            + remedy
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
        "Check the compiler by itself with the command above; reinstall it (apt-get install --reinstall g++),\n"
        "or set CXX to another one."
    )

    def __init__(self, compiler: object, command: Sequence[object], found: str, log: str = "") -> None:
        self.command = tuple(str(part) for part in command)
        self.log = log
        words = f"\nIts last words:\n{indented(tail(log, 10))}" if log.strip() else ""
        super().__init__(f"{compiler} {found}.{words}\nCommand: {shlex.join(self.command)}\n{self.remedy}")


class CompilerNotExecutableError(CompilerBrokenError):
    """The compiler's file cannot be executed."""

    remedy = (
        "Make it executable (chmod +x), reinstall it (apt-get install --reinstall g++), or set CXX (for nvcc: NVCC)\n"
        "to another one."
    )


class CompilerCrashedError(CompilerBrokenError):
    """The compiler was ended by a signal, or reports an error inside itself."""

    remedy = (
        "This is a fault of the compiler, not of the source. Try another version of it (set CXX), or a lower\n"
        "optimisation level (-O1 among the extra compiler flags)."
    )


class CompilerOutOfMemoryError(CompilerBrokenError):
    """The compiler ran out of memory, or the kernel killed it for want of memory."""

    remedy = "Free some memory, raise the container's memory limit, or run fewer builds at once; then try again."


class CompilerSilentError(CompilerBrokenError):
    """The compiler failed and did not say why."""


class CompilerNoOutputError(CompilerBrokenError):
    """The compiler reported success, and yet wrote no usable file."""


class CompileError(ToolchainError):
    """The compiler does not accept the source.

    ``errors`` are the compiler's own, each at the author's line where one is known; ``log`` is all it said.
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
            "All that the compiler said is in this error's `log`."
        )


class UnsupportedArchError(ToolchainError, ValueError):
    """A GPU architecture that the installed CUDA compiler does not know."""

    def __init__(self, arch: str, tool: str, supported: Sequence[str]) -> None:
        super().__init__(
            f"{tool} cannot compile for {arch!r}; it knows {listed(supported)}.\n"
            "Name one of these, or install a CUDA version that knows this GPU."
        )


class NoSourceError(ToolchainError, ValueError):
    """A build without anything to compile."""

    def __init__(self, label: str) -> None:
        super().__init__(f"There is nothing to compile for {label}: give at least one source file.")


class SourceNotFoundError(ToolchainError, FileNotFoundError):
    """A source file that is not there or cannot be read."""

    def __init__(self, path: object, label: str, reason: str) -> None:
        super().__init__(
            f"The source file {path} of {label} cannot be read: {reason}.\n"
            "Relative paths start at the current directory; Path(__file__).parent / 'kernel.cpp' always works."
        )


class CacheError(ToolchainError):
    """Compiled code can be kept nowhere: neither in the cache directory nor in a temporary one."""

    def __init__(self, directory: object, reason: str, temporary: str | None = None) -> None:
        also = f", and no temporary directory could take its place: {temporary}" if temporary else ""
        super().__init__(
            f"The cache directory {directory} cannot be used: {reason}{also}.\n"
            "Set OPSMITH_CACHE_DIR to a directory of yours with free space."
        )


class CacheSecurityError(CacheError):
    """A cache that another user can write is never executed from."""

    def __init__(self, directory: object, reason: str, remedy: str) -> None:
        ToolchainError.__init__(
            self,
            f"The cache directory {directory} is refused: {reason}, and opsmith executes no code that another user "
            f"could have written.\n{remedy}",
        )


class CacheWarning(OpsmithWarning):
    """The base of warnings about the cache."""


class CacheFallbackWarning(CacheWarning):
    """The cache directory cannot be written, so this process keeps what it builds in a temporary directory."""

    def __init__(self, directory: object, reason: str, temporary: object) -> None:
        super().__init__(
            f"The cache directory {directory} cannot be written: {reason}. "
            f"What this process builds goes to {temporary}, which is removed when it ends: the next one builds again. "
            "Set OPSMITH_CACHE_DIR to a directory of yours with free space."
        )


class CorruptCacheEntryWarning(CacheWarning):
    """An entry of the cache is damaged; it is not loaded but built anew."""

    def __init__(self, directory: object, label: str, reason: str) -> None:
        super().__init__(
            f"The cache entry {directory} of {label} is damaged ({reason}); it is built anew. "
            "If this happens again, check that disk."
        )


class LoadingFailedError(ToolchainError, ImportError):
    """A library ends the process that loads it: what it does while it is loaded fails."""

    def __init__(self, label: str, words: str) -> None:
        self.log = words
        super().__init__(
            f"{label} is built, but a process that loads it ends: what it does while it is loaded, registering "
            f"operators as a rule, fails. Its last words:\n{indented(tail(words, 12))}"
        )


class LoadError(ToolchainError, ImportError):
    """The dynamic linker refuses a compiled library."""

    def __init__(self, path: object, words: str, built_for: str | None, running: str | None, remedy: str) -> None:
        versions = ""
        if built_for and built_for != running:
            versions = f"\nIt was built for torch {built_for}; this process runs torch {running or '(not imported)'}."
        super().__init__(f"{path} cannot be loaded: {words}{versions}\n{remedy}")
