"""Files of rows: written, read, refused where they are none, and held against each other."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from opsmith import errors
from opsmith.benchmark import Results, regressions
from opsmith.benchmark.results import COLUMNS, KEY, NOISE, common_rows, key_of, missing

from .made_rows import made_results, made_row


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    results = made_results(warnings=["µ: a note"])
    path = tmp_path / "a folder" / "rows.json"
    results.save(path)
    again = Results.load(path)
    assert (again.rows, again.environment, again.warnings) == (results.rows, results.environment, results.warnings)
    assert json.loads(path.read_text())["schema"] == 1
    assert str(again) == "384 rows on NVIDIA H200"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[1, 2]", "has no rows of schema 1"),
        ('{"rows": []}', "has no rows of schema 1"),
        ('{"schema": 2, "rows": [], "environment": {}}', "has no rows of schema 1"),
        ('{"schema": 1, "rows": [], "environment": null}', "its rows are damaged"),
        ('{"schema": 1, "environment": {}}', "its rows are damaged"),
        ('{"schema": 1, "environment": {}, "rows": [3]}', "its rows are damaged"),
        ('{"schema": 1, "environment": {}, "rows": [{"op": "a::b", "us": 1}]}', "its rows are damaged"),
        ('{"schema": 1, "environment": {}, "rows": [], "warnings": "none"}', "its rows are damaged"),
    ],
)
def test_a_file_without_valid_rows_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(errors.ResultsFileError, match=reason) as caught:
        Results.load(path)
    assert str(path) in str(caught.value) and "opsmith bench --json" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(errors.ResultsFileError, match="No such file"):
        Results.load(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.ResultsFileError, match="is not JSON"):
        Results.load(tmp_path / "bytes.json")


def test_a_committed_file_of_an_older_kind_is_refused() -> None:
    committed = Path(__file__).parents[2] / "benchmarks" / "results" / "overhead_cpu.json"
    with pytest.raises(errors.ResultsFileError, match="has no rows of schema 1"):
        Results.load(committed)


def changed(results: Results, factor: float, **wanted: object) -> Results:
    """The same rows with those that are `wanted` slower by a factor."""
    chosen = [id(row) for row in results.rows if all(row[key] == value for key, value in wanted.items())]
    slowed = [
        {**row, **{key: row[key] * factor for key in ("us", "low_us", "high_us")}} if id(row) in chosen else row
        for row in results.rows
    ]
    return Results(slowed, results.environment)


def test_the_same_rows_are_no_regression() -> None:
    assert regressions(made_results(), made_results()) == []
    assert common_rows(made_results(), made_results()) == 384


def test_what_is_slower_beyond_noise_is_named() -> None:
    before = made_results()
    now = changed(before, 1.5, op="opsmith::gelu", sample="1024", dtype="float32", direction="forward")
    found = regressions(before, now, ["opsmith"])
    assert [(change.row["op"], change.row["contender"]) for change in found] == [("opsmith::gelu", "opsmith")]
    assert found[0].ratio == pytest.approx(1.5)
    assert "opsmith::gelu 1024 float32 forward opsmith" in str(found[0]) and "(1.50x" in str(found[0])
    assert len(regressions(before, now)) == 4, "of every contender, where none is named"


def test_what_noise_explains_is_no_regression() -> None:
    row = made_row()
    half = (row["high_us"] - row["low_us"]) / (2 * row["us"])
    before = Results([row])
    for factor, slower in ((1 + NOISE + 2 * half - 0.002, False), (1 + NOISE + 2 * half + 0.002, True), (0.5, False)):
        assert bool(regressions(before, changed(before, factor))) is slower


@pytest.mark.parametrize(
    ("before", "now", "slower"),
    [
        ((100, 99, 299), (250, 240, 299), False),
        ((100, 20, 101), (140, 139, 141), True),
        ((100, 98, 102), (110, 107, 115), True),
    ],
)
def test_intervals_that_lie_apart_are_a_regression_however_skewed(before: Any, now: Any, slower: bool) -> None:
    rows = [{**made_row(), **dict(zip(("us", "low_us", "high_us"), times, strict=True))} for times in (before, now)]
    assert bool(regressions(Results(rows[:1]), Results(rows[1:]))) is slower


def test_a_cell_that_is_measured_twice_is_that_of_the_quieter_time() -> None:
    def made(own: float, other: float, **more: float) -> list[dict[str, Any]]:
        rows = [{**made_row(), "us": own, **more}, {**made_row(), "us": other, "speedup": other / own}]
        rows[1]["contender"] = "eager"
        return rows

    assert made_row()["contender"] == "opsmith"
    for new, kept in (((5, 8), (5, 8)), ((5, 90), (10, 20)), ((11, 21), (10, 20))):
        results = Results(made(10, 20, cold_s=3.0))
        results.keep_fastest(made(*new))
        assert [row["us"] for row in results.rows] == [*kept]
        assert results.rows[1]["speedup"] == kept[1] / kept[0], "a speed-up is of one time"
        assert results.rows[0]["cold_s"] == 3.0
    lacking = Results(made(10, 20))
    lacking.keep_fastest(made(5, 8)[:1])  # the other was not measured again
    assert [row["us"] for row in lacking.rows] == [10, 20]


def test_a_wide_interval_excuses_more() -> None:
    row = made_row()
    wild = {**row, "low_us": row["us"] * 0.7, "high_us": row["us"] * 1.3}
    assert regressions(Results([row]), changed(Results([row]), 1.3))
    assert not regressions(Results([wild]), changed(Results([wild]), 1.3))


@pytest.mark.parametrize("key", KEY)
def test_rows_of_other_things_are_not_compared(key: str) -> None:
    row = made_row()
    other = {**row, key: "another" if isinstance(row[key], str) else 12345}
    assert key_of(row) != key_of(other)
    assert regressions(Results([row]), changed(Results([other]), 9.0)) == []
    assert common_rows(Results([row]), Results([other])) == 0


def test_common_rows_of_some_contenders() -> None:
    assert common_rows(made_results(), made_results(), ["opsmith"]) == 96


def test_every_column_of_a_row_is_explained() -> None:
    for row in made_results().rows:
        assert row.keys() <= COLUMNS.keys()
    assert {*KEY} <= COLUMNS.keys()


@pytest.mark.parametrize(
    "damage",
    [
        {"us": math.nan}, {"us": math.inf}, {"us": 0}, {"us": -5}, {"us": True}, {"high_us": "2"}, {"notes": 5},
        {"low_us": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_time_that_nothing_takes_is_damage(tmp_path: Path, damage: dict[str, Any]) -> None:
    results = made_results()
    results.rows[3] |= damage
    results.save(tmp_path / "rows.json")
    with pytest.raises(errors.ResultsFileError, match="its rows are damaged"):
        Results.load(tmp_path / "rows.json")


def test_nested_beyond_reading_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(errors.ResultsFileError, match="is not JSON"):
        Results.load(path)


def test_missing_rows_are_found() -> None:
    before = Results([made_row(), made_row(contender="triton"), made_row("opsmith::gelu")])
    now = Results([made_row(), made_row(contender="eager")])
    assert [row["contender"] for row in missing(before, now, {"opsmith", "triton"})] == ["triton"]
