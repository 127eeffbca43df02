"""What tests of the command line are given: the application in this process, and the real one in another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fresh_process
import pytest
from typer.testing import CliRunner, Result

import opsmith
from opsmith import runtime
from opsmith.cli import _app

Invoke = Callable[..., Result]
Run = Callable[..., subprocess.CompletedProcess[str]]

PACKAGES = Path(opsmith.__file__).parents[1]

# A process decides its tier once, by what is in the cache: before these tests give it another, empty one.
runtime.tier()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # a verb that is given a file looks beside it from then on


@pytest.fixture
def invoke() -> Invoke:
    """invoke('list', 'mish.py') -> what the verb prints and ends with, in this process."""
    return lambda *arguments: CliRunner().invoke(_app.create(), [*map(str, arguments)], prog_name="opsmith")


@pytest.fixture
def run() -> Run:
    """run('list', 'mish.py', COLUMNS='120') -> the same, as a user would have it."""

    def run(*arguments: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
        return fresh_process.run(
            ["-m", "opsmith.cli", *arguments],
            timeout=timeout,
            # The Python tier: a process on an empty cache would begin to build the C++ one.
            env={**os.environ, "PYTHONPATH": str(PACKAGES), "OPSMITH_RUNTIME": "python", **environment},
        )

    return run


def flat(text: str) -> str:
    """The words, whatever the width they were wrapped to."""
    return " ".join(text.split())
