"""The process in which one probe runs: `python -m opsmith.cli.doctor.child MODULE:FUNCTION FILE_DESCRIPTOR`."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from dataclasses import asdict

from .finding import Finding


def main(function: str, descriptor: str) -> None:
    # As an exception, SIGTERM lets the toolchain end the compiler it waits for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("was ended"))
    with os.fdopen(int(descriptor), "w") as answer:
        json.dump(asdict(find(function)), answer)
    # The finding is written: a library that crashes at interpreter shutdown changes nothing.
    os._exit(0)


def find(function: str) -> Finding:
    """The probe's finding; an exception is one too."""
    module, _, name = function.partition(":")
    try:
        finding: Finding = getattr(importlib.import_module(module), name)()
        return finding
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return Finding("broken", "needs torch", fix="see PyTorch's line")
        return Finding.of_error(error)
    except Exception as error:
        return Finding.of_error(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
