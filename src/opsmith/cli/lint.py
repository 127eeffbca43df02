"""`opsmith lint FILE.cu`: faults of CUDA and C++ sources that compile, each with its line and its fix."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from .. import lint
from ..errors.base import plural
from ._options import Json, option
from ._screen import FAILED, RefusedError, output, prepare_json, write_json

_TAB = "    "
_SHORTEST = 20  # the least width of a quoted line, however narrow the terminal is


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE|DIR", help="Sources, or directories of them.", show_default=False),
    ] = None,
    json: Json = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules with their reasons.")] = False,
    select: Annotated[list[str] | None, option(metavar="RULE,...", help="Run only these rules.")] = None,
    ignore: Annotated[list[str] | None, option(metavar="RULE,...", help="Run all rules but these.")] = None,
) -> None:
    """Find faults in CUDA and C++ sources: wrong stream, no device guard, 32-bit indices and more."""
    if rules:
        _print_rules()
        return
    wanted = _wanted(select, ignore)
    sources = _sources(paths or [])
    prepare_json(json)
    findings = [finding for finding in _linted(sources) if finding.rule in wanted]
    _print_findings(findings, len(sources))
    write_json(json, {"files": len(sources), "findings": [asdict(finding) for finding in findings]})
    if findings:
        raise typer.Exit(FAILED)


def _wanted(select: Sequence[str] | None, ignore: Sequence[str] | None) -> set[str]:
    """The names of the rules to run."""
    selected, ignored = _named("--select", select), _named("--ignore", ignore)
    return set(selected or lint.REASONS) - set(ignored)


def _named(flag: str, given: Sequence[str] | None) -> list[str]:
    names = [name.strip() for value in given or () for name in value.split(",") if name.strip()]
    for name in names:
        if name not in lint.REASONS:
            near = difflib.get_close_matches(name, lint.REASONS, n=1)
            hint = f"Did you mean {near[0]}?" if near else "`opsmith lint --rules` lists the rules."
            raise RefusedError(f"{flag} {name}: there is no such rule. {hint}")
    return names


def _sources(paths: Sequence[Path]) -> list[Path]:
    if not paths:
        raise RefusedError("name a CUDA or C++ source, or a directory of them:  opsmith lint csrc/")
    for path in paths:
        if not path.exists():
            raise RefusedError(f"{path}: there is no such file or directory.")
    found = lint.sources(paths)
    if not found:
        raise RefusedError(
            f"no source was found in {', '.join(map(str, paths))}: sources end in {' '.join(lint.SUFFIXES)}."
        )
    return found


def _linted(sources: Sequence[Path]) -> list[lint.Finding]:
    try:
        return lint.lint_files(sources)
    except OSError as error:
        raise RefusedError(f"{error.filename}: cannot be read: {error.strerror}.") from error


# --- Output -----------------------------------------------------------------------------------------------------------


def _print_rules() -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, reason in lint.REASONS.items():
        table.add_row(name, reason)
    output.print(table)
    output.print()
    output.print("A comment allows a rule to be broken on its own line and the next one:", style="dim")
    output.print("  // opsmith: allow(float-atomics): sums of integers are exact", style="dim")
    output.print("`// opsmith: allow-file(float-atomics)` allows it in the whole file.", style="dim")


def _print_findings(findings: Sequence[lint.Finding], files: int) -> None:
    texts: dict[str, list[str]] = {}
    for finding in findings:
        _print_finding(finding, texts)
        output.print()
    counted = plural(files, "file")
    if not findings:
        output.print(Text.assemble(("✓ ", "green"), f"no finding in {counted}"))
        return
    total = plural(len(findings), "finding")
    by_rule = Counter(finding.rule for finding in findings)
    listed = ", ".join(f"{rule} {count}" for rule, count in by_rule.most_common())
    output.print(
        Text.assemble((total, "bold red"), f" in {len({each.path for each in findings})} of {counted}: {listed}")
    )


def _print_finding(finding: lint.Finding, texts: dict[str, list[str]]) -> None:
    # soft_wrap: terminals and editors open a place that is on one line.
    output.print(Text.assemble((finding.place, "bold"), ": ", (finding.rule, "red")), soft_wrap=True)
    _print_indented(Text("    "), finding.message)
    if finding.path not in texts:
        texts[finding.path] = Path(finding.path).read_text(encoding="utf-8-sig", errors="replace").split("\n")
    for line in _quoted(finding, texts[finding.path]):
        output.print(line, no_wrap=True, overflow="crop", crop=True)
    _print_indented(Text.assemble("    ", ("fix", "green"), " "), finding.remedy)


def _print_indented(before: Text, text: str) -> None:
    """Wraps a text to the right of `before`. (Rich's own Padding would fill the lines up with spaces.)"""
    indent = Text(" " * len(before))
    for number, line in enumerate(Text(text).wrap(output, max(_SHORTEST, output.width - len(before)))):
        line.rstrip()
        output.print(Text.assemble(indent if number else before, line), soft_wrap=True)


def _quoted(finding: lint.Finding, lines: Sequence[str]) -> Iterator[Text]:
    """The line, and a mark below what was found. A long line is cut on the left to show the mark."""
    if not 0 < finding.line <= len(lines):
        return
    line = lines[finding.line - 1]
    before, after = line[: finding.column - 1], line[finding.column - 1 :]
    word = len(after) - len(after.lstrip("_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))
    number = str(finding.line).rjust(4)
    room = max(_SHORTEST, output.width - len(number) - 3)
    before, after = before.replace("\t", _TAB), after.replace("\t", _TAB)
    indent = len(before) - len(before.lstrip())
    before = before[indent:]
    if cell_len(before) + max(word, 1) > room:
        before = "…" + before[-(room // 2) :]
    yield Text.assemble((f"{number} │ ", "dim"), before, (after[:word], "bold"), after[word:])
    mark = "^" + "~" * (word - 1)
    yield Text.assemble((" " * len(number) + " │ ", "dim"), " " * cell_len(before), (mark, "bold red"))
