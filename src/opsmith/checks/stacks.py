"""The line of Python at which a process crashed, from the stack that faulthandler wrote."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
_PACKAGE = Path(__file__).parents[1]


def innermost_line(stacks: str) -> str:
    """'; Python was at mish.py:12, in launch': the innermost line outside libraries, or else of all; '' for none."""
    frames = _FRAME.findall(stacks.partition("Current thread")[2].partition("\n\n")[0])
    if not frames:
        return ""
    file, line, function = next((frame for frame in frames if not _is_library(frame[0])), frames[0])
    return f"; Python was at {os.path.basename(file)}:{line}, in {function}"


def _is_library(file: str) -> bool:
    """Whether a file belongs to opsmith, torch or Python itself."""
    standard = file.startswith(sysconfig.get_path("stdlib") + os.sep) and "site-packages" not in file
    return standard or file.startswith((str(_PACKAGE), "<")) or f"{os.sep}site-packages{os.sep}torch{os.sep}" in file
