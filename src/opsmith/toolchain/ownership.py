"""Refuse a cache that another user could have written: its contents are executed."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from pathlib import Path

from ..errors import CacheSecurityError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def written_by_us_alone(status: os.stat_result) -> bool:
    """Whether only this user, or root (who can do anything to us in any case), may write this file or directory."""
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & _OTHERS_WRITE


def refuse_if_others_can_write(directory: Path) -> None:
    """Raise CacheSecurityError unless ``directory`` is safe to execute from; a directory that is not there is safe."""
    try:
        status = os.stat(directory)
    except OSError:
        return
    if status.st_uid not in (0, os.geteuid()):
        raise CacheSecurityError(
            directory,
            f"it belongs to {_user(status.st_uid)}, while this process runs as {_user(os.geteuid())}",
            "Set OPSMITH_CACHE_DIR to a directory of your own.",
        )
    if status.st_mode & _OTHERS_WRITE:
        raise CacheSecurityError(
            directory,
            f"its mode {stat.S_IMODE(status.st_mode):04o} lets others write into it",
            f"If you trust what is in it:  chmod 700 {shlex.quote(str(directory))}",
        )
    # Anyone who may write a parent directory can replace this one while we use it; the sticky bit (/tmp) forbids that.
    # Groups do not count: many systems give each user their own group, and home directories mode 0775.
    for parent in directory.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CacheSecurityError(
                directory,
                f"the mode {stat.S_IMODE(mode):04o} of {parent} lets every user replace what is below it",
                f"Fix it:  chmod o-w {shlex.quote(str(parent))}  or set OPSMITH_CACHE_DIR to another directory.",
            )


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
