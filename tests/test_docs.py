"""What the pages show is true: code is quoted from tested files, figures from committed rows, output from real runs.

    make readme-table

updates every page.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import reference_page

from opsmith.benchmark.results import COLUMNS
from opsmith.checks.items import every_item

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
README = ROOT / "README.md"
SPEED = ROOT / "docs" / "speed.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = ROOT / "docs" / "reference.md"
OP_PAGES = sorted((ROOT / "src" / "opsmith" / "ops").glob("*/README.md"))

QUOTE = re.compile(r"<!-- (\S+\.(?:py|cpp|cu)) \[(\w+)\] -->\n```(?:python|cpp)\n(.*?)\n?```", re.DOTALL)
OUTPUT = re.compile(r"<!-- output -->\n```\n\$ opsmith ([^\n]*)\n.*?```", re.DOTALL)
ITEMS = re.compile(r"<!-- items -->\n((?:\|.*\n)*)")
ROWS = re.compile(r"<!-- columns -->\n((?:\|.*\n)*)")
TABLE = re.compile(r"<!-- (benchmarks/results/(\w+?)_\w+\.json)((?: [\w:-]+)*) -->\n((?:\|.*\n)*)")


def region(path: str, marker: str) -> str:
    """The lines of a file between two lines `# [marker]`, or `// [marker]`."""
    lines = (ROOT / path).read_text().splitlines()
    first, last = [number for number, line in enumerate(lines) if line.strip() in (f"# [{marker}]", f"// [{marker}]")]
    return textwrap.dedent("\n".join(lines[first + 1 : last])).strip()


def overhead_table(rows: list[dict], names: Sequence[str]) -> list[str]:
    cases = dict.fromkeys(row["case"] for row in rows)
    found = {(row["case"], row["tier"]): f"{row['ratio']:.2f}" for row in rows}
    tiers = [tier for tier in ("native", "python", "generated") if not names or tier in names]
    heads = {"native": "C++", "python": "Python fallback", "generated": "pointwise"}
    lines = [f"| | {' | '.join(heads[tier] for tier in tiers)} |", "|---" * (1 + len(tiers)) + "|"]
    return lines + [f"| {case} | {' | '.join(found.get((case, tier), '') for tier in tiers)} |" for case in cases]


WHO = ("opsmith", "compile", "eager")


def times(timed: dict[str, dict]) -> list[str]:
    """['**128** / 131 / 1788', '99 %']: microseconds, the least in bold, and the share of copy bandwidth. Nothing where
    nothing is moved."""
    if timed.get("opsmith", {}).get("share") is None:
        return ["", ""]
    taken = [timed[who]["us"] if who in timed else None for who in WHO]
    least = min(each for each in taken if each is not None)
    shown = ["-" if each is None else f"**{each:.0f}**" if each == least else f"{each:.0f}" for each in taken]
    return [" / ".join(shown), f"{timed['opsmith']['share']:.0%}".replace("%", " %")]


def large_table(rows: list[dict], names: Sequence[str]) -> list[str]:
    """Rows of `opsmith bench`: one line per op, layout and dtype, for those that the marker names ("mish", "bfloat16",
    "scale_bias_relu:64-columns"), or of all."""
    dtypes = {row["dtype"] for row in rows}
    wanted, ops = dtypes & {*names} or dtypes, {*names} - dtypes
    found: dict[tuple[str, str], dict[str, dict[str, dict]]] = {}
    for row in rows:
        op, (_, _, layout) = row["op"].removeprefix("opsmith::"), row["sample"].partition(", ")
        if row["dtype"] in wanted and (not ops or ops & {op, f"{op}:{layout.replace(' ', '-')}"}):
            cell = found.setdefault((f"{op}, {layout}" if layout else op, row["dtype"]), {})
            cell.setdefault(row["direction"], {})[row["contender"].removesuffix("-max")] = row
    shares = rows[0]["device"] != "cpu"  # others use its memory at the same time: a share of its bandwidth means little
    heads = ["op", "dtype", *(("forward", "of copy", "backward", "of copy") if shares else ("forward", "backward"))]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for (op, dtype), ways in found.items():
        cells = []
        for way in ("forward", "backward"):
            cells += times(ways.get(way, {}))[: 2 if shares else 1]
        lines.append(f"| {' | '.join([op, dtype, *cells])} |")
    return lines


def cells_table(rows: list[dict], names: Sequence[str]) -> list[str]:
    """The cells in which another is faster, beyond doubt and the bar."""
    from cells import lost

    own = {_cell(row): row["us"] for row in rows if row["contender"] == "opsmith"}
    slower = lost(rows, "cpu" if rows[0]["device"] == "cpu" else "cuda")
    if not slower:
        return [f"| of {len(own)} cells none is lost |", "|---|"]
    lines = [f"| of {len(own)} cells, those lost | dtype | | opsmith | faster |", "|---|---|---|---|---|"]
    for row in slower:
        op, faster = row["op"].removeprefix("opsmith::"), f"{row['contender']} {row['us']:.3g}"
        shown = [f"{op}, {row['sample']}", row["dtype"], row["direction"], f"{own[_cell(row)]:.3g} us", faster]
        lines.append(f"| {' | '.join(shown)} |")
    return lines


def _cell(row: dict) -> tuple:
    return tuple(row[key] for key in ("op", "sample", "dtype", "direction"))


def convrnn_table(rows: list[dict], names: Sequence[str]) -> list[str]:
    found = {(row["dtype"], row["batch"], row["steps"], row["direction"]): row for row in rows if "opsmith_us" in row}
    lines = ["| B | T | dtype | forward | backward | PyTorch loop, forward |", "|---|---|---|---|---|---|"]
    for dtype, batch, steps in dict.fromkeys(key[:3] for key in found):
        forward, backward = (found[dtype, batch, steps, each] for each in ("forward", "backward"))
        loop = f"{forward['loop_us']:.0f}" if "loop_us" in forward else ""
        lines.append(
            f"| {batch} | {steps} | {dtype} | **{forward['opsmith_us']:.0f}** | {backward['opsmith_us']:.0f} | {loop} |"
        )
    return lines


def items_table(found: re.Match[str]) -> str:
    """The checklist as `opsmith check` runs it: one line per item, with the first line of its file."""
    lines = ["| item | holds when it passes | level | on |", "|---|---|---|---|"]
    for item in every_item():
        lines.append(f"| `{item.name}` | {item.description} | {item.level} | {', '.join(item.on)} |")
    return "<!-- items -->\n" + "".join(f"{line}\n" for line in lines)


def columns_table(found: re.Match[str]) -> str:
    """What a row of `opsmith bench` has."""
    lines = ["| column | |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in COLUMNS.items())]
    return "<!-- columns -->\n" + "".join(f"{line}\n" for line in lines)


def mutations_table(rows: list[dict], names: Sequence[str]) -> list[str]:
    """The seeded faults that torch's own checks let through, and what finds them."""
    lines = ["| fault | what is wrong | found by |", "|---|---|---|"]
    for row in rows:
        if row["found"] and row["torch"] == "" and row["reproduced"]:
            items = ", ".join(f"`{item}`" for item in row["items"][:3])
            lines.append(f"| `{row['fault']}` | {row['story']} | {items} |")
    return lines


TABLES: dict[str, Callable[[list[dict], Sequence[str]], list[str]]] = {
    "cells": cells_table,
    "large": large_table,
    "convrnn": convrnn_table,
    "mutations": mutations_table,
    "overhead": overhead_table,
}


def table(path: str, benchmark: str, names: Sequence[str]) -> str:
    rows = json.loads((ROOT / path).read_text())["rows"]
    return "".join(f"{line}\n" for line in TABLES[benchmark](rows, names))


def output(arguments: str) -> str:
    """What `opsmith ARGUMENTS` prints, without its times and without this machine's paths."""
    command = [sys.executable, "-m", "opsmith.cli", *shlex.split(arguments)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stderr  # 1: the check has found something
    text = re.sub(r" in \d+\.\d s$| \(\d+\.\d\d s\)", "", ran.stdout, flags=re.MULTILINE)
    return re.sub(r"^```.*\n", "", text.replace(f"{ROOT}/", ""), flags=re.MULTILINE)


def renewed(text: str) -> str:
    """The page with its quotes and tables as the files have them."""

    def quote(found: re.Match[str]) -> str:
        fence = "python" if found[1].endswith(".py") else "cpp"
        return f"<!-- {found[1]} [{found[2]}] -->\n```{fence}\n{region(found[1], found[2])}\n```"

    def measured(found: re.Match[str]) -> str:
        return f"<!-- {found[1]}{found[3]} -->\n{table(found[1], found[2], found[3].split())}"

    return ROWS.sub(columns_table, ITEMS.sub(items_table, TABLE.sub(measured, QUOTE.sub(quote, text))))


def with_output(text: str) -> str:
    """The page with the output of its commands."""
    return OUTPUT.sub(lambda found: f"<!-- output -->\n```\n$ opsmith {found[1]}\n{output(found[1])}```", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_and_figures_are_quoted(page: Path) -> None:
    text = page.read_text()
    assert text == renewed(text), "run: make readme-table"
    blocks = text.count("```python") + text.count("```cpp")
    assert blocks == len(QUOTE.findall(text)), "every block of code is quoted from a tested file"


def test_the_readme_has_code_output_and_figures() -> None:
    text = README.read_text()
    assert len(QUOTE.findall(text)) >= 4 and len(OUTPUT.findall(text)) == 1
    assert [path for path, _, _, _ in TABLE.findall(text)] == ["benchmarks/results/large_h200.json"]
    assert text.count("\n") < 200


def test_the_page_of_speed_has_every_figure() -> None:
    assert [path for path, _, _, _ in TABLE.findall(SPEED.read_text())] == [
        f"benchmarks/results/{name}.json"
        for name in ("large_h200", "large_cpu", "convrnn_h200", "overhead_cpu", "overhead_h200")
    ]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if OUTPUT.search(page.read_text())], ids=lambda page: page.name
)
def test_output_is_what_the_command_prints(page: Path) -> None:
    text = page.read_text()
    assert text == with_output(text), "run: make readme-table"


def test_the_reference_page_lists_the_package() -> None:
    assert REFERENCE.read_text() == reference_page.page(), "run: make readme-table"


def test_every_environment_variable_is_listed() -> None:
    named = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r'(?:environ\S*|^[A-Z_]+ = )"(OPSMITH_[A-Z_]+)"', path.read_text(), re.MULTILINE)
    }
    assert named - reference_page.INTERNAL == {*reference_page.ENVIRONMENT}


@pytest.mark.parametrize("page", [README, SPEED], ids=lambda page: page.name)
def test_tables_are_measured(page: Path) -> None:
    tables = TABLE.findall(page.read_text())
    assert tables and all(rows.count("\n") > 2 for _, _, _, rows in tables)


def bench_row(contender: str, us: float, **others: object) -> dict:
    row = {"op": "opsmith::mish", "sample": "2^27", "dtype": "bfloat16", "direction": "forward", "device": "H200"}
    return {**row, "contender": contender, "us": us, "share": 0.988, **others}


def test_a_table_of_large_calls_has_one_line_per_op_and_layout() -> None:
    rows = [bench_row("opsmith", 128.2), bench_row("compile-max", 131.0)]
    rows += [{**row, "op": "opsmith::scale_bias_relu", "sample": "2^27, 64 columns"} for row in rows]
    assert large_table(rows, ["scale_bias_relu"])[2:] == [
        "| scale_bias_relu, 64 columns | bfloat16 | **128** / 131 / - | 99 % |  |  |"
    ]
    assert len(large_table(rows, [])) == 4
    assert large_table(rows, ["mish", "scale_bias_relu:64-columns"]) == large_table(rows, [])
    assert len(large_table(rows, ["mish", "scale_bias_relu:NCHW", "bfloat16"])) == 3
    rows += [{**row, "dtype": "float32"} for row in rows]
    assert len(large_table(rows, ["bfloat16"])) == 4 and len(large_table(rows, [])) == 6
    on_a_cpu = large_table([{**row, "device": "cpu"} for row in rows], ["mish", "float32"])
    assert on_a_cpu[0] == "| op | dtype | forward | backward |" and on_a_cpu[2:] == [
        "| mish | float32 | **128** / 131 / - |  |"
    ]


def test_a_table_of_cells_has_those_that_are_lost() -> None:
    slower = {"speedup": 0.5, "speedup_low": 0.49, "speedup_high": 0.51}
    even = {"speedup": 1.0, "speedup_low": 0.99, "speedup_high": 1.01}
    rows = [bench_row("opsmith", 4.0), bench_row("eager", 2.0, **slower), bench_row("compile-max", 4.0, **even)]
    heading, _, *lines = cells_table(rows, [])
    assert "of 1 cells" in heading and lines == ["| mish, 2^27 | bfloat16 | forward | 4 us | eager 2 |"]
    assert cells_table([rows[0], rows[2]], []) == ["| of 1 cells none is lost |", "|---|"]


def test_the_two_commands_are_named() -> None:
    text = README.read_text()
    assert "make demo" in text and "make test" in text


LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")


def sections(page: Path) -> set[str]:
    """The names that links into a page may end in, made of its headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *OP_PAGES], ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    for file, section in LINK.findall(prose):
        if "benchmarks/results/" in file:  # which may not be measured yet
            continue
        target = page.parent / file if file else page
        assert target.exists(), file
        assert not section or section in sections(target), f"{file}#{section}"


def test_no_machine_is_named() -> None:
    tracked = [
        path for folder in ("src", "tests", "examples", "benchmarks", "docs") for path in (ROOT / folder).rglob("*")
    ]
    words = ["/" + "root/", "/" + "work/", "/" + "farm/"]
    for path in (path for path in tracked if "build" not in path.parts):  # compile_commands.json names this machine
        if path.suffix in (".py", ".md", ".h", ".cpp", ".json", ".toml", ".txt"):
            text = path.read_text()
            assert not any(word in text for word in words), path


if __name__ == "__main__":
    REFERENCE.write_text(reference_page.page())
    for each in PAGES:
        each.write_text(with_output(renewed(each.read_text())))
