"""Finds faults in CUDA and C++ sources for torch that compile and pass a first test.

    opsmith.lint.lint_file("add.cu")  # -> [Finding(path='add.cu', line=12, column=3, rule='default-stream', ...)]

`opsmith lint` is the same on the command line. Needs only the standard library: it works without torch.
"""

from __future__ import annotations

from .linter import REASONS, SUFFIXES, lint_file, lint_files, lint_text, sources
from .rule import Finding, Rule
from .rules import RULES

__all__ = ["REASONS", "RULES", "SUFFIXES", "Finding", "Rule", "lint_file", "lint_files", "lint_text", "sources"]
