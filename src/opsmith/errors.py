"""Every error and warning a user of opsmith can meet: what happened, where, and the remedy.

Each class names one mistake. Classes mix in TypeError, ValueError or RuntimeError where Python users would catch those.
"""

from __future__ import annotations

import copyreg
import inspect
import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any


class OpsmithError(Exception):
    """The base of every error opsmith raises."""

    def __reduce__(self) -> tuple[object, ...]:
        # These constructors take facts and compose the message, while Exception's own pickling would call them with the
        # message alone: an error from a worker process must arrive as itself.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class OpsmithWarning(UserWarning):
    """The base of every warning opsmith gives: something works, but by a slower road, and the message names it."""


class ReferenceRunsWarning(OpsmithWarning):
    """A generated kernel could not be compiled, so the plain PyTorch reference runs in its place."""

    def __init__(self, device: str, reason: str) -> None:
        super().__init__(
            f"opsmith cannot compile pointwise kernels for {device} here, so the plain PyTorch references run instead "
            f"(right, but slower): {reason}"
        )


# --- Declaring an op ------------------------------------------------------------------------------------------


class InvalidNameError(OpsmithError, ValueError):
    """The op's name is not of the form namespace::name."""

    def __init__(self, name: object) -> None:
        super().__init__(
            f"{name!r} is not an operator name. Write 'namespace::name', each part letters, digits and underscores, "
            "not beginning with a digit: 'mylib::mish'."
        )


class NameTakenError(OpsmithError, ValueError):
    """The name belongs to another module's op, or to an operator opsmith did not declare."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(
            f"{name} is already declared by {owner}. Choose another name; only the module that declared an op can "
            "declare it again (as a notebook cell run twice does)."
        )


class SignatureError(OpsmithError, TypeError):
    """The reference's signature cannot become an operator schema."""

    def __init__(self, name: str, function: Callable[..., Any], what: str) -> None:
        super().__init__(f"{name}: the reference {described(function)} cannot become an operator: {what}.")


class ReferenceResultError(OpsmithError, TypeError):
    """The reference returned something other than what its annotation says."""

    def __init__(self, name: str, function: Callable[..., Any], expected: str, given: str) -> None:
        super().__init__(
            f"{name}: the reference {described(function)} is annotated to return {expected} but returned {given}."
        )


class NotPointwiseError(OpsmithError, TypeError):
    """A reference given to `pointwise` does what no kernel of elements can do."""

    def __init__(self, name: str, function: Callable[..., Any], what: str, line: str) -> None:
        where = f"\n  {line}" if line else ""
        super().__init__(
            f"{name}: the reference {described(function)} is not pointwise: {what}.{where}\n"
            "A pointwise reference computes each element from the elements in the same place, by torch's elementwise "
            "functions. For anything else declare it with @opsmith.op, which takes any PyTorch function."
        )


class OutMismatchError(OpsmithError, ValueError):
    """A tensor given as out= is not what the result is."""

    def __init__(self, name: str, result: str, given: str) -> None:
        super().__init__(
            f"{name}: the result is {result}, but out= is {given}. Give an out= of the result's shape and dtype."
        )


class UndeclaredMutationError(OpsmithError, RuntimeError):
    """The reference or a kernel changed an input that mutates_args does not name."""

    def __init__(self, name: str, argument: str, culprit: str) -> None:
        super().__init__(
            f"{name}: {culprit} changes its input {argument!r} in place, which the op does not declare: autograd and "
            f"torch.compile would give wrong results. Work on a copy ({argument} = {argument}.clone()), or declare "
            f'mutates_args=("{argument}",) and return None.'
        )


class RandomReferenceError(OpsmithError, RuntimeError):
    """A gradient by recomputing the reference was asked for, but the reference draws random numbers."""

    def __init__(self, name: str, where: str) -> None:
        super().__init__(
            f"{name}: the reference draws random numbers ({where}), so its gradient cannot be derived by running it "
            "again. Draw outside and pass the numbers in as a tensor, or write the gradient with register_autograd or "
            "register_backward."
        )


class RegistrationError(OpsmithError, ValueError):
    """register_* was given something it does not take."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}.")


# --- Calling an op --------------------------------------------------------------------------------------------


class ArgumentError(OpsmithError, TypeError):
    """An argument is not of the type the op's schema takes."""

    def __init__(self, name: str, schema: str, what: str) -> None:
        super().__init__(f"{name}: {what}.\n  Its signature is {schema}")


class SharedMemoryError(OpsmithError, ValueError):
    """Two arguments of an in-place op share memory that it changes."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(
            f"{name}: {first} and {second} share memory, which the op changes: what it gives would depend on the order "
            f"of its steps. Give it a copy: {second} = {second}.clone()."
        )


class DeviceMixError(OpsmithError, ValueError):
    """Tensors of one call are on different devices."""

    def __init__(self, name: str, places: dict[str, str]) -> None:
        listed = ", ".join(f"{argument} on {device}" for argument, device in places.items())
        devices = list(dict.fromkeys(places.values()))
        target = next((device for device in devices if device != "cpu"), devices[0])
        stray = next(argument for argument, device in places.items() if device != target)
        super().__init__(
            f"{name}: all tensors of a call must be on one device, but there is {listed}. "
            f"Move them together, for example {stray} = {stray}.to({target!r})."
        )


class KernelResultError(OpsmithError, RuntimeError):
    """A kernel returned something other than what the reference returns for the same arguments."""

    def __init__(self, name: str, kernel: str, what: str) -> None:
        super().__init__(
            f"{name}: the kernel {kernel} does not return what the reference does: {what}. A kernel returns fresh "
            "contiguous tensors of the reference's shapes, dtypes and device."
        )


class UnknownKernelError(OpsmithError, KeyError):
    """`using` named a kernel that is not registered."""

    def __init__(self, name: str, kernel: str, known: list[str]) -> None:
        listed = ", ".join(repr(each) for each in known)
        super().__init__(f"{name} has no kernel {kernel!r}; it has {listed}.")

    def __str__(self) -> str:
        return str(self.args[0])


class UnsavedInputError(OpsmithError, RuntimeError):
    """The derived gradient needs an input that the op's backward kernel did not ask to be saved."""

    def __init__(self, name: str, inputs: list[str]) -> None:
        listed = ", ".join(inputs)
        super().__init__(
            f"{name}: this gradient is derived from the reference and needs {listed}, but the backward kernel of this "
            f"device does not name {listed} among its parameters, so nothing was saved. Add {listed} to the parameters "
            "of the function given to register_backward."
        )


class InPlaceGradientError(OpsmithError, RuntimeError):
    """torch.ops was called in place on a tensor that needs a gradient."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} changes its argument in place, and an argument requires a gradient. torch.ops cannot record that: "
            "call the Op object itself (it keeps the gradient right), or wrap the call in torch.no_grad()."
        )


class OutGradientError(OpsmithError, RuntimeError):
    """out= was given while an argument requires a gradient."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}: out= cannot be differentiated, and an argument requires a gradient. Leave out= away, or wrap the "
            "call in torch.no_grad()."
        )


class RedeclaredError(OpsmithError, RuntimeError):
    """Something made before the op, or its backward kernel, was declared again was used: the old Op, its graph, a
    compiled function."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}, or its backward kernel, has been declared again since. Use the Op of the new declaration; a "
            "graph recorded before needs its forward pass once more, and a function compiled before needs compiling."
        )


class RuntimeTierError(OpsmithError, ValueError):
    """OPSMITH_RUNTIME is set to something that is not a tier."""

    def __init__(self, variable: str, value: str) -> None:
        super().__init__(f"{variable}={value!r} is not a runtime: set 'native' (C++), 'python', or nothing at all.")


class SamplesMissingError(OpsmithError, LookupError):
    """A check, benchmark or demo was asked for, but the op has no samples."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} has no samples to run on. Give some:\n"
            "    @op.register_samples\n"
            "    def _(device, dtype):\n"
            "        yield opsmith.Sample(args=(torch.randn(64, device=device, dtype=dtype),))"
        )


class UnknownOpError(OpsmithError, LookupError):
    """No op of that name is declared."""

    def __init__(self, name: str, known: list[str]) -> None:
        listed = ", ".join(known) if known else "none"
        super().__init__(
            f"No op named {name!r} is declared (declared: {listed}). Import the module that declares it first."
        )


def described(function: Callable[..., Any]) -> str:
    """'mish (activations.py:12)': a function by its name and the author's own line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    title = getattr(function, "__name__", repr(function))
    return title if code is None else f"{title} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


# --- Toolchain: compilers, the cache, builds ------------------------------------------------------------------


class ToolchainError(OpsmithError, RuntimeError):
    """The base of what can go wrong while finding a compiler, building, caching or loading."""


class CompilerNotFoundError(ToolchainError):
    """No C++ compiler is installed, or CXX names none."""

    def __init__(self, looked_for: Sequence[str]) -> None:
        self.looked_for = tuple(looked_for)
        super().__init__(
            f"No C++ compiler was found; looked for {_listed(looked_for)}.\n"
            "Install one:  apt-get install g++\n"
            "or set CXX to the path of g++ or clang++."
        )


class CompilerTooOldError(ToolchainError):
    """The C++ compiler does not know C++20, which torch's headers are written in."""

    def __init__(self, compiler: object, minimum: str) -> None:
        super().__init__(
            f"{compiler} does not know C++20, which torch's headers are written in; {minimum} or newer does.\n"
            "Install a newer one:  apt-get install g++\n"
            "or set CXX to the path of a newer g++ or clang++."
        )


class NvccNotFoundError(ToolchainError):
    """CUDA's compiler is not installed, or NVCC names none."""

    def __init__(self, looked_for: Sequence[str]) -> None:
        self.looked_for = tuple(looked_for)
        super().__init__(
            f"nvcc, the CUDA compiler, was not found; looked for {_listed(looked_for)}.\n"
            "Install the CUDA toolkit (apt-get install cuda-toolkit-13, from NVIDIA's repository) and set CUDA_HOME.\n"
            "Kernels given to opsmith.cuda_source need no nvcc, only NVRTC:  pip install 'opsmith[cuda13]'"
        )


class NvrtcNotFoundError(ToolchainError):
    """NVRTC, which compiles CUDA kernels at run time, or its Python binding is not installed."""

    def __init__(self, reason: str, extra: str) -> None:
        super().__init__(
            f"NVRTC, which compiles CUDA kernels, was not found: {reason}.\nInstall it:  pip install 'opsmith[{extra}]'"
        )


class CudaHeadersNotFoundError(ToolchainError):
    """NVRTC is there, but not the headers it needs for half types."""

    def __init__(self, version: str, looked_in: Sequence[object], extra: str) -> None:
        super().__init__(
            f"NVRTC {version} was found, but no cuda_fp16.h of its major version; looked in {_listed(looked_in)}.\n"
            f"Install the headers:  pip install 'opsmith[{extra}]'"
        )


class CudaVersionMismatchError(ToolchainError):
    """A CUDA compiler of another major version than torch's CUDA: its kernels might not load into torch's process."""

    def __init__(self, tool: str, version: str, torch_cuda: str, remedy: str) -> None:
        super().__init__(
            f"{tool} is of CUDA {version}, but torch is built for CUDA {torch_cuda}: the major versions must agree.\n"
            + remedy
        )


class PythonHeadersNotFoundError(ToolchainError):
    """Python.h is not installed."""

    def __init__(self, looked_in: Sequence[object]) -> None:
        super().__init__(
            f"Python.h was not found; looked in {_listed(looked_in)}.\n"
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
        words = f"\nIts last words:\n{_indented(_tail(log, 10))}" if log.strip() else ""
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
        shown = "\n\n".join(str(error) for error in self.errors[:3]) or _tail(log, 15)
        more = len(self.errors) - 3
        rest = f"\n\n(and {more} more)" if more > 0 else ""
        super().__init__(
            f"{compiler} could not compile {label}:\n\n{_indented(shown)}{rest}\n\n"
            f"Command: {shlex.join(self.command)}\n"
            "All that the compiler said is in this error's `log`."
        )


class UnsupportedArchError(ToolchainError, ValueError):
    """A GPU architecture that the installed CUDA compiler does not know."""

    def __init__(self, arch: str, tool: str, supported: Sequence[str]) -> None:
        super().__init__(
            f"{tool} cannot compile for {arch!r}; it knows {_listed(supported)}.\n"
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


class LoadError(ToolchainError, ImportError):
    """The dynamic linker refuses a compiled library."""

    def __init__(self, path: object, words: str, built_for: str | None, running: str | None, remedy: str) -> None:
        versions = ""
        if built_for and built_for != running:
            versions = f"\nIt was built for torch {built_for}; this process runs torch {running or '(not imported)'}."
        super().__init__(f"{path} cannot be loaded: {words}{versions}\n{remedy}")


def _listed(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items) or "nothing"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def _tail(text: str, lines: int) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
