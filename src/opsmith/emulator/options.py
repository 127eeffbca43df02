"""The options of a GPU compiler that also apply to a C++ compiler: macros."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONG = {"--define-macro": "-D", "--undefine-macro": "-U"}
_MACRO = re.compile(r"^(?P<option>-D|-U|--define-macro|--undefine-macro)(?P<value>.*)$", re.DOTALL)


def macros(options: Sequence[str]) -> list[str]:
    """-DNAME=VALUE and -UNAME, in their order, for NVRTC's and nvcc's spellings: -DX, -D X, -D=X, --define-macro=X, and
    each with its value as a separate option."""
    found = []
    remaining = iter(options)
    for given in remaining:
        match = _MACRO.match(given)
        if match is None:
            continue
        option = _LONG.get(match["option"], match["option"])
        value = match["value"] or next(remaining, "")
        found.append(option + value.removeprefix("=").strip())
    return found
