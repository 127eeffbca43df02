"""Lint of kernel source: faults of CUDA and C++ code for torch that compile, and show on another day.

    opsmith.lint.lint_file("add.cu")  # -> [Finding(path='add.cu', line=12, column=3, rule='default-stream', ...)]

`opsmith lint` is the same on the command line. Needs the standard library alone: it works where torch does not.
"""

from __future__ import annotations

from .finding import Finding
from .linter import REASONS, lint_file, lint_files, lint_text
from .rule import Rule
from .rules import RULES

__all__ = ["REASONS", "RULES", "Finding", "Rule", "lint_file", "lint_files", "lint_text"]
