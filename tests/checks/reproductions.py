"""Runs the reproduction of a failure as a user would: copied into a file, in a new process."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import fresh_process

TESTS = Path(__file__).parents[1]
SECONDS = 300.0


def run(text: str, timeout: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Exit status 1 and the error on stderr where the fault shows, 0 where it does not.

    Modules of this folder (`checks.faulty.NAME`) can be imported by the text, as they can by a test."""
    paths = [str(TESTS), str(TESTS.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reproduction.py"
        file.write_text(text + "\n")
        return fresh_process.run([str(file)], cwd=folder, env=environment, timeout=timeout)
