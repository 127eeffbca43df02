"""`opsmith new`: names that are refused, and places that cannot be written to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .base import OpsmithError

_MOST_SHOWN = 5


class ScaffoldNameError(OpsmithError, ValueError):
    """A package or an op cannot have this name."""

    def __init__(self, name: str, reason: str, instead: str | None = None) -> None:
        self.reason, self.instead = reason, instead
        hint = f" Try {instead}." if instead and instead != name else ""
        super().__init__(f"{name!r} cannot be the name: {reason}.{hint}")


class ScaffoldPlaceError(OpsmithError, OSError):
    """Files cannot be written to this place."""


class FilesExistError(ScaffoldPlaceError, FileExistsError):
    """Files exist in the place to write to, and `--force` was not given."""

    def __init__(self, root: Path, taken: Sequence[str], is_project: bool) -> None:
        more = f" and {len(taken) - _MOST_SHOWN} more" if len(taken) > _MOST_SHOWN else ""
        shown = ", ".join(taken[:_MOST_SHOWN]) + more
        what = f"{root} is not empty: it has {shown}." if is_project else f"{root} already has {shown}."
        other = "Choose another directory (--into DIR)" if is_project else "Choose another name"
        super().__init__(f"{what} {other}, or overwrite files of the same names: --force")
