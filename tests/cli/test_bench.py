"""`opsmith bench`: its table, its files, and what it ends with."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from benchmark.made_rows import made_results, made_row
from rich.console import Console

import opsmith
from opsmith.benchmark import Ceilings, Results, ceilings
from opsmith.benchmark.results import processor
from opsmith.cli._bench_table import bar, shown

from .conftest import Invoke, flat

OPS = Path(__file__).parent / "ops_to_bench.py"
SCALE_ADD = ("bench", "bench_tests::scale_add", "--from", OPS, "--device", "cpu", "--against", "eager")
FORWARD = (*SCALE_ADD, "--direction", "forward")


@pytest.fixture(autouse=True)
def _known_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Ceilings(read=1e10, write=1e10, copy=1e10, matmul={"float32": 1e11})
    monkeypatch.setattr(ceilings, "measure", lambda device: known)


def printed(rows: list[dict[str, Any]], width: int) -> list[str]:
    console = Console(width=width, highlight=False, color_system=None, record=True)
    console.print(shown(rows, console))
    return console.export_text().splitlines()


# --- the table ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contenders", [1, 2, 3, 4])
def test_at_80_columns_nothing_is_wrapped_and_every_row_has_a_bar(contenders: int) -> None:
    names = ("opsmith", "eager", "compile", "compile-max")[:contenders]
    rows = made_results(ops=["opsmith::scale_bias_relu"], dtypes=["bfloat16"], contenders=names).rows
    title, heading, *lines = printed(rows, 80)
    assert title == "opsmith::scale_bias_relu  bfloat16, NVIDIA H200; microseconds"
    assert heading.split()[: 1 + contenders] == ["sample", *names] and "of memory limit" in heading
    assert [line.strip() for line in lines if "%" not in line] == ["forward", "backward"]
    assert len(lines) == 14 and all(len(line) <= 80 for line in (title, heading, *lines))
    largest = next(line for line in lines if line.startswith("1073741824"))
    assert "███████" in largest and "96%" in largest
    assert largest.count("x") == contenders - 1


def test_with_room_there_are_intervals_and_longer_bars() -> None:
    rows = made_results(ops=["opsmith::mish"], dtypes=["float32"]).rows
    narrow, wide = printed(rows, 80), printed(rows, 120)
    with_shares = [line for line in wide if "%" in line]
    assert not any("±" in line for line in narrow) and with_shares and all("±" in line for line in with_shares)
    assert max(line.count("█") for line in wide) > 2 * max(line.count("█") for line in narrow)
    assert max(map(len, wide)) <= 120


def test_without_room_bars_are_left_out_before_anything_else() -> None:
    rows = made_results(dtypes=["float32"], ops=["opsmith::mish"], contenders=("opsmith", "eager", "triton")).rows
    lines = printed(rows, 54)
    assert not any("█" in line for line in lines) and "96%" in lines[8]
    assert lines[8].split()[0] == "1073741824" and max(map(len, lines)) <= 54


def test_a_single_direction_is_in_the_title() -> None:
    title, _, line = printed([made_row(kind="cpu", sample="a name")], 80)
    assert title == "opsmith::mish  float32, forward, cpu, 2 threads; microseconds"
    assert line.startswith("a name")


def test_rows_without_a_cost_have_no_bar() -> None:
    row = {key: value for key, value in made_row().items() if key not in ("share", "limit", "bytes", "flops")}
    _, heading, line = printed([row], 80)
    assert heading.split() == ["sample", "opsmith"] and "█" not in line
    _, heading, first, second = printed([made_row(), {**row, "sample": "another"}], 80)
    assert "limit" in heading and "█" in first and "█" not in second


def test_two_limits_are_named_in_each_row() -> None:
    lines = printed([made_row(), {**made_row(sample="matrices"), "limit": "compute"}], 80)
    assert "of the limit" in lines[1] and lines[2].split()[-1] == "memory" and lines[3].split()[-1] == "compute"


def test_a_contender_may_be_missing_somewhere() -> None:
    rows = [made_row(), made_row(contender="eager"), made_row(sample="another")]
    lines = printed(rows, 80)
    assert "x" in lines[2] and "x" not in lines[3]


def test_a_name_is_never_markup() -> None:
    assert any("[red]name[/]" in line for line in printed([made_row(sample="[red]name[/]")], 80))


def test_bars_are_true_to_an_eighth() -> None:
    assert bar(0.5, 8) == "████    " and bar(1.0, 8) == "█" * 8 and bar(1.3, 8) == "█" * 8
    assert bar(0.0, 8).strip() == "▏" and bar(0.57, 8) == "████▌   "
    assert all(len(bar(share / 100, 8)) == 8 for share in range(120))


# --- the command ----------------------------------------------------------------------------------------------


def test_it_times_an_op_and_writes_its_rows(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke(*FORWARD, "--shape", "64x6", "--json", tmp_path / "rows.json")
    assert result.exit_code == 0, result.output
    assert "bench_tests::scale_add  float32, forward, cpu, 2 threads; microseconds" in result.output
    rows = Results.load(tmp_path / "rows.json").rows
    assert [(row["contender"], row["sample"], row["elements"]) for row in rows] == [
        ("opsmith", "64x6", 384),
        ("eager", "64x6", 384),
    ]


def rewritten(path: Path, factor: float, contender: str) -> None:
    held = json.loads(path.read_text())
    for row in held["rows"]:
        if row["contender"] == contender:
            row |= {key: row[key] * factor for key in ("us", "low_us", "high_us")}
    path.write_text(json.dumps(held))


def test_compare_ends_with_1_where_the_op_is_slower_and_says_which(invoke: Invoke, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    assert invoke(*FORWARD, "--json", before).exit_code == 0
    rewritten(before, 1 / 50, "opsmith")  # it was fifty times as fast
    result = invoke(*FORWARD, "--compare", before)
    assert result.exit_code == 1, result.output
    assert f"1 rows compared with {before}, 1 slower" in flat(result.output)
    assert "bench_tests::scale_add sample 0 float32 forward opsmith: " in flat(result.output)


def test_compare_ends_with_0_where_only_a_baseline_is_slower(invoke: Invoke, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    assert invoke(*FORWARD, "--json", before).exit_code == 0
    rewritten(before, 50, "opsmith")
    rewritten(before, 1 / 50, "eager")
    result = invoke(*FORWARD, "--compare", before)
    assert result.exit_code == 0, result.output
    assert f"1 rows compared with {before}, 0 slower" in result.output


def test_compare_with_rows_of_other_things_proves_nothing(invoke: Invoke, tmp_path: Path) -> None:
    made_results().save(tmp_path / "other.json")
    result = invoke(*FORWARD, "--compare", tmp_path / "other.json")
    assert result.exit_code == 1
    assert "was measured on another machine (NVIDIA H200)" in flat(result.output)
    other = made_results()
    other.environment["device"] = processor()
    other.save(tmp_path / "other.json")
    result = invoke(*FORWARD, "--compare", tmp_path / "other.json")
    assert result.exit_code == 1
    assert "0 rows compared" in flat(result.output) and "No row is in both" in flat(result.output)


def test_compare_ends_with_1_where_a_kernel_is_not_measured_any_more(invoke: Invoke, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    assert invoke(*FORWARD, "--json", before).exit_code == 0
    held = json.loads(before.read_text())
    held["rows"].append({**held["rows"][0], "contender": "triton"})
    before.write_text(json.dumps(held))
    result = invoke(*FORWARD, "--compare", before)
    assert result.exit_code == 1 and "forward triton: not measured any more" in flat(result.output)


# --- what goes wrong on the way

BROKEN = """
import opsmith, torch

@opsmith.op("bench_tests::broken")
def broken(x: torch.Tensor) -> torch.Tensor:
    return x + 1

@broken.register_kernel("cpu")
def _(x):
    raise ZeroDivisionError("of the author's own")

@broken.register_samples
def _(device, dtype):
    yield opsmith.Sample((torch.ones(4, device=device, dtype=dtype),))

@opsmith.op("bench_tests::sound")
def sound(x: torch.Tensor) -> torch.Tensor:
    return x + 1

@sound.register_samples
def _(device, dtype):
    yield opsmith.Sample((torch.ones(4, device=device, dtype=dtype),), name="four")
"""


def test_an_op_that_fails_does_not_affect_the_rows_of_others(invoke: Invoke, tmp_path: Path) -> None:
    source, rows = tmp_path / "half_broken.py", tmp_path / "rows.json"
    source.write_text(BROKEN)
    result = invoke("bench", source, "--device", "cpu", "--against", "eager", "--direction", "forward", "--json", rows)
    assert result.exit_code == 1
    assert "bench_tests::broken, float32: ZeroDivisionError: of the author's own" in flat(result.output)
    assert [row["op"] for row in Results.load(rows).rows] == ["bench_tests::sound"] * 2


def changed(path: Path, namespace: str, *changes: tuple[str, str]) -> Path:
    """The file above, with its ops in a namespace of their own and the first of them changed."""
    text = BROKEN.replace("bench_tests", namespace)
    for old, new in (("raise ZeroDivisionError", "return x + 1\n    raise ZeroDivisionError"), *changes):
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path


def test_rows_that_were_measured_before_an_op_failed_are_kept(invoke: Invoke, tmp_path: Path) -> None:
    backward = "@broken.register_backward('cpu')\ndef _(grads, x, *, needs):\n    raise ZeroDivisionError('again')\n\n"
    samples = "@broken.register_samples"
    source = changed(tmp_path / "fails_backward.py", "bench_backward", (samples, f"{backward}{samples}"))
    rows = tmp_path / "rows.json"
    result = invoke("bench", source, "--device", "cpu", "--against", "eager", "--json", rows)
    assert result.exit_code == 1 and "ZeroDivisionError: again" in flat(result.output)
    found = [(row["op"], row["direction"]) for row in Results.load(rows).rows if row["contender"] == "opsmith"]
    sound = "bench_backward::sound"
    assert found == [("bench_backward::broken", "forward"), (sound, "forward"), (sound, "backward")]


def test_an_op_without_a_sample_to_resize_does_not_affect_the_rows_of_others(invoke: Invoke, tmp_path: Path) -> None:
    source = changed(tmp_path / "empty.py", "bench_empty", ("torch.ones(4", "torch.ones(0"))
    rows = tmp_path / "rows.json"
    result = invoke("bench", source, "--shape", "64", "--device", "cpu", "--against", "eager", "--json", rows)
    assert result.exit_code == 1
    assert "bench_empty::broken has no sample with elements to take the values from" in flat(result.output)
    assert {(row["op"], row["sample"]) for row in Results.load(rows).rows} == {("bench_empty::sound", "64")}


def test_what_draws_random_numbers_has_its_forward_timed(invoke: Invoke, tmp_path: Path) -> None:
    start, end = BROKEN.index("@broken.register_kernel"), BROKEN.index("@broken.register_samples")
    kernel = BROKEN[start:end].replace("raise", "return x + 1\n    raise")
    random = (("return x + 1", "return x * torch.rand_like(x)"), (kernel, ""))
    source, rows = changed(tmp_path / "random_op.py", "bench_random", *random), tmp_path / "rows.json"
    result = invoke("bench", source, "--device", "cpu", "--against", "eager", "--profile", "--json", rows)
    assert result.exit_code == 0, result.output
    found = [row["direction"] for row in Results.load(rows).rows if row["op"] == "bench_random::broken"]
    assert found == ["forward", "forward"]
    assert "no backward: bench_random::broken: the reference draws random numbers" in flat(result.output)


def test_what_was_slow_only_once_is_no_regression(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, times = tmp_path / "before.json", []
    assert invoke(*FORWARD, "--json", before).exit_code == 0
    rewritten(before, 20, "opsmith")
    module = importlib.import_module("opsmith.benchmark")
    real = opsmith.bench

    def disturbed(*args: Any, **options: Any) -> Results:
        results = real(*args, **options)
        times.append(len(times))
        for row in results.rows if len(times) == 1 else []:
            row |= {key: row[key] * 1000 for key in ("us", "low_us", "high_us")}
        return results

    monkeypatch.setattr(module, "bench", disturbed)
    result = invoke(*FORWARD, "--compare", before)
    assert result.exit_code == 0, result.output
    assert len(times) == 2 and f"1 rows compared with {before}, 0 slower" in flat(result.output)


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "measure", lambda device: pytest.fail("it was measured"))
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "rows.json", tmp_path / "none" / "rows.json"):
        result = invoke(*FORWARD, "--json", path)
        assert result.exit_code == 2 and f"error: --json {path}" in flat(result.output)


def test_rows_go_to_stdout_in_place_of_the_report(invoke: Invoke) -> None:
    result = invoke(*FORWARD, "--json", "-")
    assert result.exit_code == 0, result.output
    assert [row["contender"] for row in json.loads(result.stdout)["rows"]] == ["opsmith", "eager"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--direction", ","), "give one or more directions of forward, backward, both"),
        (("--threads", "0"), "greater than or equal to 1"),
        (("--shape", "2^45"), "scale_add, float32: "),
        (("--shape", "2^60"), "--shape: '2^60' does not fit in any memory"),
        (("--shape", "9^99999999"), "'9^99999999' does not fit in any memory"),
    ],
)
def test_bad_options_are_reported_without_a_traceback(invoke: Invoke, arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*FORWARD, *arguments)
    assert result.exit_code in (1, 2) and message in flat(result.output) and "Traceback" not in result.output


def test_a_missing_gpu_is_refused(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = invoke("bench", "opsmith::mish", "--device", "cuda")
    assert result.exit_code == 2 and "torch sees no GPU here" in flat(result.output)


def test_a_wrong_op_is_reported_and_the_others_are_timed(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke(
        "bench", OPS, "--device", "cpu", "--against", "", "--direction", "forward", "--json", tmp_path / "r"
    )
    assert result.exit_code == 1, result.output
    assert "bench_tests::wrong, 64: opsmith is not timed, because its results differ from the reference's" in flat(
        result.output
    )
    assert {row["op"] for row in Results.load(tmp_path / "r").rows} == {"bench_tests::scale_add"}


def test_profile_shows_the_kernels(invoke: Invoke) -> None:
    result = invoke(*FORWARD, "--profile")
    assert result.exit_code == 0 and "bench_tests::scale_add  sample 0, forward: kernels" in result.output


def test_a_contender_that_is_not_measured_is_noted(invoke: Invoke) -> None:
    result = invoke("bench", "bench_tests::scale_add", "--from", OPS, "--device", "cpu", "--against", "triton")
    assert result.exit_code == 0
    assert "note: triton is not measured: bench_tests::scale_add has no such kernel" in flat(result.output)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--shape", "many"], "--shape: 'many' is not a shape: give sizes separated by x, as in 4096x1024, or 2^20"),
        (["--shape", "4x0"], "--shape: '4x0' is not a shape"),
        (["--dtype", "float31"], "--dtype float31 is not a dtype of torch"),
        (["--direction", "sideways"], "--direction: direction 'sideways' is not one of forward, backward, both"),
        (["--compare", "nowhere.json"], "--compare: nowhere.json cannot be read: No such file or directory"),
    ],
)
def test_invalid_options_are_refused(invoke: Invoke, options: list[str], reason: str) -> None:
    result = invoke(*SCALE_ADD, *options)
    assert result.exit_code == 2, result.output
    assert reason in flat(result.output)


def test_a_file_that_declares_no_op(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("import torch\n")
    result = invoke("bench", tmp_path / "nothing.py", "--device", "cpu")
    assert result.exit_code == 2 and "declares no op" in flat(result.output)


@pytest.mark.parametrize("name", ["opsmith::mishh", "mihs"])
def test_an_op_that_is_not_there(invoke: Invoke, name: str) -> None:
    result = invoke("bench", name, "--device", "cpu")
    assert result.exit_code == 2 and "Did you mean opsmith::mish?" in flat(result.output)


def test_a_source_without_names_means_only_its_ops(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "ops_of_one_file.py").write_text(
        "import torch, opsmith\n"
        "@opsmith.op('one_file::only')\n"
        "def only(x: torch.Tensor) -> torch.Tensor: return x + 1\n"
        "@only.register_samples\n"
        "def samples(device, dtype): yield opsmith.Sample((torch.ones(8, device=device, dtype=dtype),))\n"
    )
    rows = tmp_path / "rows.json"
    result = invoke(
        "bench", "--from", tmp_path / "ops_of_one_file.py", "--device", "cpu", "--against", "eager", "--direction",
        "forward", "--json", rows,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert {row["op"] for row in Results.load(rows).rows} == {"one_file::only"}
