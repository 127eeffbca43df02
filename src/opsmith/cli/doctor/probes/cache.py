"""Probe: the cache directory is this user's alone, and what is written into it can be read back."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from pathlib import Path

from ....errors import CacheSecurityError
from ....toolchain import cache_directory, usage
from ..._screen import size, tilde
from ..finding import Finding


def cache() -> Finding:
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
        return Finding("broken", f"{what}: what is read is not what was written")
    used = usage()
    builds = "1 build" if used.entries == 1 else f"{used.entries} builds"
    return Finding("ok", f"{what}, {builds}, {size(used.bytes)}", "wrote, renamed and read a file")
