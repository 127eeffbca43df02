"""Lints one source: every rule, then what the source's comments allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from . import embedded
from .allow import ABOUT_ALLOWS, allowed
from .finding import Finding
from .rule import Rule
from .rules import RULES
from .source import Source

Place = Callable[[int, int], tuple[int, int]]

REASONS: dict[str, str] = {**{rule.name: rule.reason for rule in RULES}, **ABOUT_ALLOWS}
"""By name, why a rule is one; the two about comments included."""


def lint_file(path: str | Path) -> list[Finding]:
    """What the rules find in a CUDA or C++ file, by line. Of a Python file, in the strings that are such sources."""
    return lint_files([path])


def lint_files(paths: Iterable[str | Path]) -> list[Finding]:
    """The same of several files that belong together: a guard or a check in the caller's file counts."""
    read = [each for path in paths for each in _read(path)]
    sources = [source for source, _ in read]
    for source in sources:
        source.peers = sources
    found = []
    for source, place in read:
        for finding in _linted(source):
            line, column = place(finding.line, finding.column)
            found.append(replace(finding, line=line, column=column))
    return sorted(found)


def lint_text(text: str, path: str = "") -> list[Finding]:
    """What the rules find in a CUDA or C++ source, by line. `path` is put into the findings; `.cu` says it is CUDA."""
    return _linted(_source(text, path))


def _read(path: str | Path) -> Iterator[tuple[Source, Place]]:
    """The sources in a file, and where a place in them is in the file."""
    text = Path(path).read_bytes().decode("utf-8-sig", errors="replace")
    if Path(path).suffix != ".py":
        yield _source(text, str(path)), lambda line, column: (line, column)
        return
    for each in embedded.sources(text):
        yield _source(each.text, str(path)), each.place


def _source(text: str, path: str) -> Source:
    return Source(text.replace("\r\n", "\n").replace("\r", "\n"), path)


def _linted(source: Source) -> list[Finding]:
    found = {finding for rule in RULES for finding in _findings(source, rule)}
    return allowed(source, sorted(found), [rule.name for rule in RULES])


def _findings(source: Source, rule: Rule) -> Iterator[Finding]:
    for problem in rule.check(source):
        line, column = source.lines.place(problem.code.tokens[problem.index].start)
        yield Finding(source.path, line, column, rule.name, problem.message, problem.remedy)
