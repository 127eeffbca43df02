"""`opsmith lint FILE.cu`: faults of CUDA and C++ sources that compile, each with its line and its remedy."""

from __future__ import annotations

import difflib
import json
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
from ._screen import FAILED, RefusedError, output

_TAB = "    "
_SHORTEST = 20
"""Columns that a quoted line is given, however narrow the terminal is."""


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE|DIR", help="Sources, or directories of them.", show_default=False),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write the findings as JSON; - is stdout.", show_default=False),
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and why they are rules.")] = False,
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="RULE,...", help="These rules alone.", show_default=False),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="RULE,...", help="All rules but these.", show_default=False),
    ] = None,
) -> None:
    """Find faults in CUDA and C++ kernel sources: wrong stream, no device guard, 32-bit indices and more."""
    if rules:
        _print_rules()
        return
    wanted = _wanted(select, ignore)
    sources = _sources(paths or [])
    findings = [finding for finding in _linted(sources) if finding.rule in wanted]
    if json_file is not None:
        _write_json(json_file, findings, len(sources))
    if json_file is None or str(json_file) != "-":
        _print_findings(findings, len(sources))
    if findings:
        raise typer.Exit(FAILED)


def _wanted(select: Sequence[str] | None, ignore: Sequence[str] | None) -> set[str]:
    """The names of the rules to run."""
    selected, ignored = _named("--select", select), _named("--ignore", ignore)
    return set(selected or lint.REASONS) - set(ignored)


def _named(option: str, given: Sequence[str] | None) -> list[str]:
    names = [name.strip() for value in given or () for name in value.split(",") if name.strip()]
    for name in names:
        if name not in lint.REASONS:
            near = difflib.get_close_matches(name, lint.REASONS, n=1)
            hint = f"Did you mean {near[0]}?" if near else "`opsmith lint --rules` lists the rules."
            raise RefusedError(f"{option} {name}: there is no such rule. {hint}")
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
            f"no source is below {', '.join(map(str, paths))}: files that end in {' '.join(lint.SUFFIXES)} are."
        )
    return found


def _linted(sources: Sequence[Path]) -> list[lint.Finding]:
    try:
        return lint.lint_files(sources)
    except OSError as error:
        raise RefusedError(f"{error.filename}: cannot be read: {error.strerror}.") from error


# --- What is printed ------------------------------------------------------------------------------------------------


def _print_rules() -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, reason in lint.REASONS.items():
        table.add_row(name, reason)
    output.print(table)
    output.print()
    output.print("A comment allows a rule to be broken, on its line or the next one:", style="dim")
    output.print("  // opsmith: allow(float-atomics): whole numbers, whose sums are exact", style="dim")
    output.print("and `// opsmith: allow-file(float-atomics)` in the whole file.", style="dim")


def _print_findings(findings: Sequence[lint.Finding], files: int) -> None:
    texts: dict[str, list[str]] = {}
    for finding in findings:
        _print_finding(finding, texts)
        output.print()
    counted = "1 file" if files == 1 else f"{files} files"
    if not findings:
        output.print(Text.assemble(("✓ ", "green"), f"no finding in {counted}"))
        return
    total = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
    by_rule = Counter(finding.rule for finding in findings)
    listed = ", ".join(f"{rule} {count}" for rule, count in by_rule.most_common())
    output.print(
        Text.assemble((total, "bold red"), f" in {len({each.path for each in findings})} of {counted}: {listed}")
    )


def _print_finding(finding: lint.Finding, texts: dict[str, list[str]]) -> None:
    # soft_wrap: a place is one word to terminals and editors, which lead to it.
    output.print(Text.assemble((finding.place, "bold"), ": ", (finding.rule, "red")), soft_wrap=True)
    _print_indented(Text("    "), finding.message)
    if finding.path not in texts:
        texts[finding.path] = Path(finding.path).read_text(encoding="utf-8-sig", errors="replace").split("\n")
    for line in _quoted(finding, texts[finding.path]):
        output.print(line, no_wrap=True, overflow="crop", crop=True)
    _print_indented(Text.assemble("    ", ("fix", "green"), " "), finding.remedy)


def _print_indented(before: Text, words: str) -> None:
    """Wraps words beside what stands before them. (Rich's own Padding would fill the lines up with spaces.)"""
    indent = Text(" " * len(before))
    for number, line in enumerate(Text(words).wrap(output, max(_SHORTEST, output.width - len(before)))):
        line.rstrip()
        output.print(Text.assemble(indent if number else before, line), soft_wrap=True)


def _quoted(finding: lint.Finding, lines: Sequence[str]) -> Iterator[Text]:
    """The line, and below it a mark under what was found. A long line is cut on the left so that the mark is seen."""
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


def _write_json(path: Path, findings: Sequence[lint.Finding], files: int) -> None:
    text = json.dumps({"files": files, "findings": [asdict(finding) for finding in findings]}, indent=2)
    if str(path) == "-":
        print(text)
        return
    try:
        path.write_text(text + "\n")
    except OSError as error:
        raise RefusedError(f"--json {path}: cannot be written: {error.strerror}.") from error
