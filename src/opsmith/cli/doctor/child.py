"""The process in which one probe runs: `python -m opsmith.cli.doctor.child MODULE:FUNCTION ANSWER.json`."""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from ...errors import (
    CompilerNotFoundError,
    CudaHeadersNotFoundError,
    NvccNotFoundError,
    NvrtcNotFoundError,
    OpsmithError,
    PythonHeadersNotFoundError,
)
from .finding import Finding

_MISSING = (
    CompilerNotFoundError,
    CudaHeadersNotFoundError,
    NvccNotFoundError,
    NvrtcNotFoundError,
    PythonHeadersNotFoundError,
)


def main(function: str, answer: str) -> None:
    module, _, name = function.partition(":")
    try:
        finding: Finding = getattr(importlib.import_module(module), name)()
    except _MISSING as error:
        finding = Finding("missing", first_line(error))
    except OpsmithError as error:
        finding = Finding("broken", first_line(error))
    except Exception as error:
        finding = Finding("broken", f"{type(error).__name__}: {first_line(error)}")
    # By rename, so that the answer of a process that is killed here is whole or absent.
    partial = Path(f"{answer}.partial")
    partial.write_text(json.dumps(asdict(finding)))
    partial.replace(answer)
    # Libraries that crash while the interpreter shuts down have answered by now.
    os._exit(0)


def first_line(error: Exception) -> str:
    """What happened; opsmith's errors give the remedy from their second line on."""
    return (str(error).strip().splitlines() or ["without a word"])[0].rstrip(".")


if __name__ == "__main__":
    main(*sys.argv[1:])
