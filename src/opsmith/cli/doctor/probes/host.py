"""Probes: the operating system, the Python that runs opsmith, and the cache directory."""

from __future__ import annotations

import os
import platform
import secrets
import stat
import sys
import tempfile
from pathlib import Path

from ....errors.base import plural
from ..._screen import size, tilde
from ..finding import Finding

OLDEST_PYTHON = (3, 10)
MACHINES = ("x86_64", "aarch64")


def system() -> Finding:
    what = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if sys.platform != "linux":
        return Finding("broken", f"{what}: opsmith is for Linux with NVIDIA GPUs")
    if platform.machine() not in MACHINES:
        return Finding("broken", f"{what}: torch and CUDA are built for {' and '.join(MACHINES)}")
    return Finding("ok", what)


def python() -> Finding:
    what = f"{platform.python_version()} ({tilde(sys.executable)})"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("broken", what)
    return Finding("ok", what)


def cache() -> Finding:
    """Whether the cache directory belongs to this user alone, and a file written there can be read back."""
    from ....errors import CacheSecurityError
    from ....toolchain import cache_directory, usage

    try:
        directory = cache_directory()
    except CacheSecurityError as error:
        what, _, remedy = str(error).partition("\n")
        return Finding("broken", what, fix=remedy)
    mode = stat.S_IMODE(os.stat(directory).st_mode)
    what = f"{tilde(directory)}, mode {mode:04o}"
    token = secrets.token_bytes(4096)
    try:
        with tempfile.TemporaryDirectory(prefix="doctor-", dir=directory) as place:
            written = Path(place, "written")
            written.write_bytes(token)
            kept = written.rename(Path(place, "renamed")).read_bytes()
    except OSError as error:
        return Finding("broken", f"{what}: {error.strerror or error}")
    if kept != token:
        return Finding("broken", f"{what}: a file that was written is read back with other contents")
    used = usage()
    what = f"{what}, {plural(used.entries, 'build')}, {size(used.bytes)}"
    return Finding("ok", what, "wrote, renamed and read a file")
