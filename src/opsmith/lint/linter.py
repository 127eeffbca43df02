"""Lints files: finds the sources below directories and in Python files, runs the rules, applies allowing comments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from .allow import ABOUT_ALLOWS, allowed
from .embedded import Place, embedded_sources
from .rule import Finding
from .rules import RULES
from .source import Source

SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hh", ".hpp", ".py")
REASONS: dict[str, str] = {**{rule.name: rule.reason for rule in RULES}, **ABOUT_ALLOWS}
"""The reason of each rule, by name, with the two rules about comments."""

_SKIPPED = {"build", "dist", "third_party", "node_modules", "site-packages", "__pycache__"}


def lint_file(path: str | Path) -> list[Finding]:
    """The findings in a CUDA or C++ file, by line; in a Python file, those in its strings that are such sources."""
    return lint_files([path])


def lint_files(paths: Iterable[str | Path]) -> list[Finding]:
    """The findings in several files that belong together: a guard or a check in the caller's file counts."""
    read = [each for path in paths for each in _read(path)]
    peers = [source for source, _ in read]
    for source in peers:
        source.peers = peers
    found = []
    for source, place in read:
        for finding in _linted(source):
            line, column = place(finding.line, finding.column)
            found.append(replace(finding, line=line, column=column))
    return sorted(found)


def lint_text(text: str, path: str = "") -> list[Finding]:
    """The findings in a CUDA or C++ source, by line. `path` is put into the findings; the suffix `.cu` means CUDA."""
    return _linted(_source(text, path))


def sources(paths: Iterable[Path]) -> list[Path]:
    """The files among the paths, and the sources below the directories among them; each once.

    In directories, hidden files, builds, virtual environments and third_party are skipped."""
    found: dict[Path, Path] = {}
    for path in paths:
        for file in _below(path) if path.is_dir() else [path]:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _below(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not _is_skipped(Path(folder, name)))
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(SUFFIXES) and name[0] != ".")


def _is_skipped(directory: Path) -> bool:
    return directory.name in _SKIPPED or directory.name.startswith(".") or (directory / "pyvenv.cfg").exists()


def _read(path: str | Path) -> Iterator[tuple[Source, Place]]:
    """The sources in a file, and how a place in them becomes one in the file."""
    text = Path(path).read_bytes().decode("utf-8-sig", errors="replace")
    if Path(path).suffix == ".py":
        yield from ((_source(each, str(path)), place) for each, place in embedded_sources(text))
    else:
        yield _source(text, str(path)), lambda line, column: (line, column)


def _source(text: str, path: str) -> Source:
    return Source(text.replace("\r\n", "\n").replace("\r", "\n"), path)


def _linted(source: Source) -> list[Finding]:
    found = set()
    for rule in RULES:
        for problem in rule.check(source):
            line, column = source.lines.place(problem.code.starts[problem.index])
            found.add(Finding(source.path, line, column, rule.name, problem.message, problem.remedy))
    return allowed(source, found, [rule.name for rule in RULES])
