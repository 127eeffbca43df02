"""docs/lint.md: its table is the rules, its output is what the command prints, its code runs.

    .venv/bin/python -m tests.lint.test_page

rewrites the table and the output; tests/test_docs.py checks the quotes of files.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import opsmith
from opsmith.lint import REASONS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "lint.md"
COMMAND = re.compile(r"<!-- opsmith (lint .*) -->\n```text\n(.*?)```", re.DOTALL)
TABLE = re.compile(r"<!-- rules -->\n\n((?:\|.*\n)*)")


def printed(arguments: str) -> str:
    """What a command prints on a terminal of 100 columns."""
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-m", "opsmith.cli", *arguments.split()], capture_output=True, cwd=ROOT, env=environment
    )
    return done.stdout.decode()


def table() -> str:
    rows = "".join(f"| `{name}` | {reason} |\n" for name, reason in REASONS.items())
    return f"<!-- rules -->\n\n| rule | why |\n|---|---|\n{rows}"


def renewed(text: str) -> str:
    text = COMMAND.sub(lambda found: f"<!-- opsmith {found[1]} -->\n```text\n{printed(found[1])}```", text)
    return TABLE.sub(lambda found: table(), text)


def test_the_table_and_the_output_are_what_the_command_has() -> None:
    text = PAGE.read_text()
    assert text == renewed(text), "run: .venv/bin/python -m tests.lint.test_page"
    assert len(COMMAND.findall(text)) == 1 and text.count("| `") == len(REASONS)


def test_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    # [python]
    findings = opsmith.lint.lint_files(["tests/lint/bad/square.cu"])  # or lint_file, or lint_text("...", "name.cu")
    first = findings[0]
    assert (first.rule, first.place) == ("int32-index", "tests/lint/bad/square.cu:5:61")
    assert first.remedy == "Take it as int64_t n."
    # [python]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
