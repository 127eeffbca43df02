"""`python -m opsmith.runtime.build`: builds the C++ runtime ahead of its first use."""

from __future__ import annotations

import os
import sys

# This process needs no tier and must not start another build of the library.
os.environ.setdefault("OPSMITH_RUNTIME", "python")

from ..errors import OpsmithError
from . import native


def main(arguments: list[str]) -> int:
    background = "--background" in arguments
    if background:
        os.nice(10)
        os.environ["OPSMITH_QUIET"] = "1"
    try:
        path = native.build()
    except OpsmithError as error:
        native.record_failure(str(error))
        if not background:
            print(f"opsmith's C++ runtime is not built, so calls will go through Python:\n{error}", file=sys.stderr)
        return 0
    native.forget_failure()
    if not background:
        print(f"opsmith's C++ runtime is ready ({path.stat().st_size // 1024} KiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
