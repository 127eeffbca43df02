"""Load a compiled library into the process, or report why the dynamic linker refuses it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
import sys
import threading
from pathlib import Path

from ..errors import LoadError
from .store import PROVENANCE

_loaded: dict[Path, ctypes.CDLL] = {}
_lock = threading.Lock()


def load_library(path: Path) -> ctypes.CDLL:
    """The library at ``path``, loaded once: every symbol resolved now, none of them visible to other libraries.

    A library that links against torch needs torch imported before. Raises LoadError with the dynamic linker's message.
    """
    path = Path(path).absolute()
    with _lock:
        if path not in _loaded:
            try:
                _loaded[path] = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            except OSError as error:
                raise _load_error(path, str(error)) from error
        return _loaded[path]


def _load_error(path: Path, message: str) -> LoadError:
    built_for = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        built_for = json.loads((path.parent / PROVENANCE).read_bytes()).get("torch")
    running = getattr(sys.modules.get("torch"), "__version__", None)
    remove = f"rm -r {shlex.quote(str(path.parent))}"
    if not path.exists():
        remedy = "The file is gone (was the cache cleared?): run the program again, and it is rebuilt."
    elif "undefined symbol" in message:
        remedy = (
            "Add the source file or the library (-l among the linker flags) that defines the symbol.\n"
            f"If it worked before, remove the build, and it is made again:  {remove}"
        )
    else:
        remedy = f"Remove the build, and it is made again for this machine:  {remove}"
    return LoadError(path, message, built_for, running, remedy)
