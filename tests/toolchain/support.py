"""What toolchain tests call: other processes, waiting for a condition, listing what is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import opsmith.toolchain as toolchain

PACKAGE = Path(toolchain.__file__).parent.parent

# Other processes get the toolchain without the rest of opsmith: importing torch takes longer than most of these tests.
PRELUDE = f"""
import os, sys, types
opsmith = types.ModuleType("opsmith")
opsmith.__path__ = [{str(PACKAGE)!r}]
sys.modules["opsmith"] = opsmith
from pathlib import Path
import opsmith.toolchain as toolchain
"""


class Child:
    """Another Python process with the toolchain imported as ``toolchain``; its words are read when it has ended."""

    def __init__(self, code: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def end(self, timeout: float = 60) -> tuple[int, str, str]:
        output, error = self.process.communicate(timeout=timeout)
        return self.process.returncode, output, error

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain until {what}")
        time.sleep(0.01)


def files_under(directory: Path) -> list[str]:
    """Every file and folder below, relative: what is compared when a test says that no litter is left."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))
