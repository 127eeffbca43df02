"""What the README shows is what the tested files say: code by marker, figures from committed rows."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def region(path: str, marker: str) -> str:
    """The lines of a file between two lines `# [marker]`."""
    lines = (ROOT / path).read_text().splitlines()
    first, last = [number for number, line in enumerate(lines) if line.strip() == f"# [{marker}]"]
    return textwrap.dedent("\n".join(lines[first + 1 : last])).strip()


def overhead_table(path: str) -> str:
    rows = json.loads((ROOT / path).read_text())["rows"]
    cases = dict.fromkeys(row["case"] for row in rows)
    found = {(row["case"], row["tier"]): f"{row['ratio']:.2f}" for row in rows}
    lines = ["| | C++ | Python twin |", "|---|---|---|"]
    lines += [f"| {case} | {found[case, 'native']} | {found[case, 'python']} |" for case in cases]
    return "\n".join(lines)


def test_code_in_the_readme_is_quoted() -> None:
    quotes = re.findall(r"<!-- (\S+\.py) \[(\w+)\] -->\n```python\n(.*?)\n```", README, re.DOTALL)
    assert len(quotes) >= 3
    for path, marker, shown in quotes:
        assert shown == region(path, marker), f"{path} [{marker}]"
    assert README.count("```python") == len(quotes), "every block of code is quoted from a tested file"


def test_figures_in_the_readme_are_measured() -> None:
    tables = re.findall(r"<!-- (benchmarks/results/overhead_\w+\.json) -->\n((?:\|.*\n)+)", README)
    assert len(tables) == 2
    for path, shown in tables:
        assert shown.strip() == overhead_table(path), path


def test_the_two_commands_are_named() -> None:
    assert "make demo" in README and "make test" in README


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_no_machine_is_named() -> None:
    tracked = [
        path for folder in ("src", "tests", "examples", "benchmarks", "docs") for path in (ROOT / folder).rglob("*")
    ]
    words = ["/" + "root/", "/" + "work/", "/" + "farm/"]
    for path in tracked:
        if path.suffix in (".py", ".md", ".h", ".cpp", ".json", ".toml", ".txt"):
            text = path.read_text()
            assert not any(word in text for word in words), path
