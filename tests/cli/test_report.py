"""`opsmith report`: files in, one page out, and words where a file is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmark.made_rows import SIZES, made_results

from opsmith.cli._bench_table import EIGHTHS

from .conftest import Invoke, Run, flat


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    made_results(sizes=SIZES[:2]).save(tmp_path / "rows.json")
    return tmp_path / "rows.json"


def test_a_page_is_written(invoke: Invoke, rows: Path, tmp_path: Path) -> None:
    result = invoke("report", rows, "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert f"{tmp_path / 'page.html'}: 128 rows, " in flat(result.output)
    text = (tmp_path / "page.html").read_text()
    assert text.startswith("<!DOCTYPE html>") and "NVIDIA H200" in text


def test_json_has_the_merged_rows(invoke: Invoke, rows: Path, tmp_path: Path) -> None:
    facts = json.loads(invoke("report", rows, rows, "-o", tmp_path / "page.html", "--json", "-").stdout)
    (machine,) = facts["machines"]
    assert facts["page"] == str(tmp_path / "page.html") and machine["name"] == "NVIDIA H200"
    assert len(machine["rows"]) == 128 and {row["contender"] for row in machine["rows"]} >= {"opsmith", "eager"}


def test_without_a_name_it_is_report_html_here(
    invoke: Invoke, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("report", rows).exit_code == 0
    assert (tmp_path / "report.html").exists()


def test_several_files_are_merged_and_two_of_one_name_keep_their_folders(
    invoke: Invoke, rows: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "rows.json"
    made_results("cpu", dtypes=["float32"]).save(other)
    result = invoke("report", rows, other, "-o", tmp_path / "page.html")
    assert result.exit_code == 0 and "320 rows" in result.output
    text = (tmp_path / "page.html").read_text()
    assert "2 machines" in text
    assert f'data-name="{tmp_path.name}/rows.json"' in text and 'data-name="elsewhere/rows.json"' in text
    assert str(tmp_path) not in text


def test_the_terminal_has_a_line_an_op_with_bars_and_rows_that_are_merged_count_once(
    invoke: Invoke, rows: Path, tmp_path: Path
) -> None:
    result = invoke("report", rows, rows, "-o", tmp_path / "page.html")
    assert result.exit_code == 0 and ": 128 rows, " in flat(result.output)
    title, heading, *lines = result.output.splitlines()
    assert title.startswith("NVIDIA H200") and heading.split()[:3] == ["op", "dtype", "direction"]
    shown = [line for line in lines if line.startswith("gelu ")]
    assert shown and all("x " in line and "%" in line and any(part in line for part in EIGHTHS[1:]) for line in shown)
    assert max(map(len, result.output.splitlines()[:-2])) <= 80


def test_a_file_without_rows_is_refused(invoke: Invoke, rows: Path, tmp_path: Path) -> None:
    committed = Path(__file__).parents[2] / "benchmarks" / "results" / "overhead_cpu.json"
    for path, reason in (
        (committed, "has no rows of schema 1"),
        (tmp_path / "none.json", "cannot be read: No such file"),
    ):
        result = invoke("report", rows, path, "-o", tmp_path / "page.html")
        assert result.exit_code == 2, result.output
        assert f"error: {path} {reason}" in flat(result.output)
        assert "Give a file that `opsmith bench --json FILE` wrote." in flat(result.output)
        assert not (tmp_path / "page.html").exists()


def test_a_place_that_cannot_be_written_to(invoke: Invoke, rows: Path, tmp_path: Path) -> None:
    result = invoke("report", rows, "-o", tmp_path)
    assert result.exit_code == 2 and f"is a directory. Give the page's file: -o {tmp_path / 'report.html'}" in flat(
        result.output
    )
    result = invoke("report", rows, "-o", tmp_path / "nowhere" / "page.html")
    assert result.exit_code == 2 and "there is no directory" in flat(result.output)


def test_no_file_at_all(run: Run) -> None:
    done = run("report")
    assert done.returncode == 2 and "RESULTS" in done.stderr


def test_as_a_user_runs_it(run: Run, rows: Path, tmp_path: Path) -> None:
    done = run("report", str(rows), "-o", str(tmp_path / "page.html"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").stat().st_size > 200_000


def test_the_page_does_not_take_the_place_of_its_rows(invoke: Invoke, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    made_results().save(rows)
    before = rows.read_text()
    result = invoke("report", rows, "-o", rows)
    assert result.exit_code == 2 and "would be overwritten" in flat(result.output) and rows.read_text() == before


def test_a_page_that_cannot_be_written_is_refused(invoke: Invoke, tmp_path: Path) -> None:
    made_results().save(tmp_path / "rows.json")
    result = invoke("report", tmp_path / "rows.json", "-o", "/dev/full")
    assert result.exit_code == 2 and "cannot be written: No space left on device" in flat(result.output)
