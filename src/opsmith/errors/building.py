"""Building an extension: its name, its sources, the settings of a build, and the functions in it."""

from __future__ import annotations

from collections.abc import Sequence

from .base import LocatedError, OpsmithError, SourceLine, indented, listed, quoted, tail
from .toolchain import ToolMissingError


class BuildSettingError(OpsmithError, ValueError):
    """A build setting, an argument or an environment variable, has an invalid value."""

    def __init__(self, setting: str, value: object, taken: str) -> None:
        super().__init__(f"{setting}={value!r} is not valid: {taken}.")


class ExtensionArgumentError(LocatedError, ValueError):
    """opsmith.extension was given an argument that it does not take."""

    def __init__(self, name: object, what: str) -> None:
        super().__init__(f"The extension {name!r} cannot be built: {what}.")


class UnknownFunctionError(LocatedError, AttributeError):
    """The extension exports no function of this name."""

    def __init__(self, extension: str, function: str, exported: Sequence[str], left_out: Sequence[str] = ()) -> None:
        why = f" ({listed(left_out)} left out of this build: CUDA is switched off)" if left_out else ""
        super().__init__(
            f"The extension {extension!r} exports no function {function!r}{why}; it exports {listed(exported)}.\n"
            f"Export it in a source file:  OPSMITH_EXPORT({function}, the_cpp_function)"
        )


class OperatorsRegisteredError(LocatedError, RuntimeError):
    """A library registers operators that this process has already, at which torch would end the process."""

    def __init__(self, extension: str, what: str) -> None:
        super().__init__(
            f"The extension {extension!r} is built but not loaded: it registers {what}, which this process has "
            "already, and torch accepts no second registration.\nRestart Python to use the new build. Functions "
            "exported with OPSMITH_EXPORT and registered by register_kernel can be rebuilt and loaded at any time."
        )


class NothingToBuildError(OpsmithError, ValueError):
    """`opsmith build` found no kernel in a package that can be built ahead of time."""

    def __init__(self, package: str, notes: Sequence[str]) -> None:
        reasons = "".join(f"\n  {note}" for note in dict.fromkeys(notes))
        super().__init__(
            f"{package} has nothing to build ahead of time. `opsmith build` compiles extensions, and the generated "
            "kernels and kernels of opsmith.cuda_source that the samples of ops (register_samples) reach."
            f"{reasons}"
        )


class CudaToolsError(ToolMissingError):
    """`opsmith build` cannot compile kernels for the requested GPUs."""

    def __init__(self, targets: Sequence[str], reason: object) -> None:
        super().__init__(
            f"Kernels for {listed(targets)} cannot be compiled here. {reason}\n"
            "To build for CPUs only:  opsmith build --no-cuda"
        )


class BuildPlaceError(OpsmithError, ValueError):
    """`opsmith build` would overwrite files that it did not write."""

    def __init__(self, directory: object, found: Sequence[str]) -> None:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        super().__init__(
            f"{directory} must contain only prebuilt files, but has {listed(found[:3])}{more}, which no build wrote. "
            "Move them, or choose an empty directory:  --into DIR"
        )


class BuildPlaceUnwritableError(OpsmithError, ValueError):
    """`opsmith build` cannot create the directory of its results, or cannot write into it."""

    def __init__(self, directory: object, reason: str) -> None:
        super().__init__(f"{directory} is not a directory that can be written: {reason}. Choose another directory.")


class PackageNotFoundError(OpsmithError, ImportError):
    """`opsmith build` found no package, or one that it cannot import."""

    def __init__(self, package: str | None, what: str) -> None:
        super().__init__(f"opsmith build {package or ''}".rstrip() + f": {what}.")


class PassportError(OpsmithError, ValueError):
    """A file given to `opsmith build --passport` cannot go into the package's passport."""

    def __init__(self, path: object, what: str) -> None:
        super().__init__(f"{path} {what}." if path is not None else f"--passport: {what}.")


class WheelError(OpsmithError, RuntimeError):
    """`opsmith build --wheel` cannot build the wheel of a project."""

    def __init__(self, project: object, what: str, output: str = "") -> None:
        lines = f":\n{indented(tail(output, 15))}" if output else "."
        super().__init__(f"The wheel of {project} cannot be built: {what}{lines}")


class NotSelfContainedError(OpsmithError, ValueError):
    """A function refers to something that `opsmith build --hf-kernel` cannot write into its self-contained file."""

    def __init__(self, owner: str, name: str, what: str, fix: str, line: SourceLine | None = None) -> None:
        self.owner = owner
        ending = f"\n{fix[0].upper()}{fix[1:]}." if fix else ""
        message = f"{owner} refers to {name!r}, which cannot go into a kernel for the Hub: {what}."
        super().__init__(f"{message}{quoted(line)}{ending}")


class HubError(OpsmithError, ValueError):
    """`opsmith build --hf-kernel` cannot write a package as a kernel for the Hub."""

    def __init__(self, package: str, what: str, line: SourceLine | None = None) -> None:
        super().__init__(f"{package} cannot be written as a kernel for the Hub: {what}.{quoted(line)}")
