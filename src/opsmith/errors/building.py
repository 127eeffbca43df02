"""Building an extension: its name, its sources, the switches of a build, and the functions in it."""

from __future__ import annotations

from collections.abc import Sequence

from .base import OpsmithError, listed


class BuildSettingError(OpsmithError, ValueError):
    """A switch of a build, an argument or an environment variable, has a value that means nothing."""

    def __init__(self, setting: str, value: object, taken: str) -> None:
        super().__init__(f"{setting}={value!r} is not a setting: {taken}.")


class ExtensionArgumentError(OpsmithError, ValueError):
    """opsmith.extension was given something it does not take."""

    def __init__(self, name: object, what: str) -> None:
        super().__init__(f"The extension {name!r} cannot be built: {what}.")


class ExtensionNameTakenError(OpsmithError, ValueError):
    """Another module has an extension of this name."""

    def __init__(self, name: str, owner: str, sources: Sequence[object]) -> None:
        super().__init__(
            f"The extension {name!r} is already declared by module {owner}, of {listed(sources)}. Choose another name; "
            "only the module that declared an extension can declare it again (as a notebook cell run twice does)."
        )


class UnknownFunctionError(OpsmithError, AttributeError):
    """The extension exports no function of this name."""

    def __init__(self, extension: str, function: str, exported: Sequence[str], left_out: Sequence[str] = ()) -> None:
        why = f" ({listed(left_out)} left out of this build: CUDA is switched off)" if left_out else ""
        super().__init__(
            f"The extension {extension!r} exports no function {function!r}{why}; it exports {listed(exported)}.\n"
            f"Export it in a source file:  OPSMITH_EXPORT({function}, the_cpp_function)"
        )


class OperatorsRegisteredError(OpsmithError, RuntimeError):
    """A library would register operators that this process has already; torch would end the process."""

    def __init__(self, extension: str, what: str) -> None:
        super().__init__(
            f"The extension {extension!r} is built but not loaded, for it registers {what}, which this process has "
            "already, and torch takes no second one.\nStart Python anew to use the new build. Functions exported with "
            "OPSMITH_EXPORT, and registered by register_kernel, can be rebuilt and loaded as often as you like."
        )
