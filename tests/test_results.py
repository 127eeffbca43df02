"""The committed rows show the bars they are there to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith import ops, scaffold

OF_ROWS = (
    "add_rms_norm", "cross_entropy", "focal_loss", "group_norm", "group_norm_silu", "kl_div_rows", "l2_normalize",
    "layer_norm", "log_softmax", "quantize_rows", "rms_norm", "softmax", "sum_rows",
)  # fmt: skip
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    return found


def test_a_launch_costs_little_more_than_cuda_cores_and_an_edit_is_seen_at_once() -> None:
    found = rows("launch_h200")
    launches = [row for row in found if row["case"].startswith("launch")]
    assert len(launches) == 2 and all(row["high"] <= 2.5 for row in launches)
    assert all(row["met"] for row in found) and len(found) == 3


def test_an_extension_is_called_as_aten_is() -> None:
    native = [row for row in rows("overhead_h200") if row["tier"] == "native"]
    assert len(native) >= 2 and all(row["ratio"] <= 1.2 for row in native)


def test_a_call_of_a_generated_op_costs_the_host_what_aten_does() -> None:
    bars = {"without grad": 1.15, "with grad": 1.4, "forward+backward": 1.0}
    found = {row["case"]: row["ratio"] for row in rows("overhead_h200") if row["tier"] == "generated"}
    assert found.keys() == bars.keys() and [case for case in bars if found[case] > bars[case]] == []


def test_convrnn_is_bound_by_its_steps_and_then_by_memory() -> None:
    found = {
        (row["batch"], row["direction"]): row
        for row in rows("convrnn_h200")
        if row["dtype"] == "float32" and "opsmith_us" in row
    }
    assert found[2, "forward"]["opsmith_us"] < 40 and found[2, "forward"]["steps"] == 512
    assert found[64, "forward"]["opsmith_us"] < 80 and found[64, "forward"]["steps"] == 1024
    assert found[4096, "forward"]["share_of_copy"] >= 0.8
    for batch in (2, 64, 4096):
        assert found[batch, "backward"]["opsmith_us"] <= 2.5 * found[batch, "forward"]["opsmith_us"]
    (memory,) = [row for row in rows("convrnn_h200") if "of_a_tensor" in row]
    assert memory["of_a_tensor"] < 0.001


COMPARED = ("build_seconds", "same_bits", "most_steps", "beyond_budget")
NOT_MEASURED = {
    ("check_h200", "cuda"): OF_ROWS,
    ("check_cpu", "emulated"): OF_ROWS,
    ("wheel_cpu", "cpu"): OF_ROWS,
    ("wheel_h200", "cuda"): tuple(ops.__all__),
    ("wheel_cpu", "facts"): COMPARED,
    ("wheel_h200", "facts"): COMPARED,
}
"""Shipped ops that have no rows yet, by file and place; of wheels also the facts that a row does not have yet. An entry
whose rows are there is an error, so the lists can only get shorter."""


def measured(path: str, place: str) -> set[str]:
    """The shipped ops, or the facts, that a file has rows of."""
    found = rows(path) if (RESULTS / f"{path}.json").exists() else []
    if place == "facts":
        return {fact for row in found for fact in row}
    if path.startswith("wheel"):
        return {op for row in found for op in row["first_call_ms"]}
    return {row["op"].removeprefix("opsmith::") for row in found if row["place"] == place}


@pytest.mark.parametrize(("path", "place", "name"), [(*key, name) for key, names in NOT_MEASURED.items()
                                                      for name in names])  # fmt: skip
def test_what_has_no_rows_is_listed(path: str, place: str, name: str) -> None:
    assert name not in measured(path, place), f"{path} has rows of {name}: take it from NOT_MEASURED"
    script = "wheel.py --compare --build-seconds N" if path.startswith("wheel") else "check.py"
    what = f"{name} among its facts" if place == "facts" else f"rows of opsmith::{name} in place {place}"
    pytest.skip(f"{path}.json does not have {what} yet: benchmarks/{script} makes them")


def test_no_item_of_the_checklist_fails_on_a_shipped_op() -> None:
    """Over 20 seeds where there is no GPU: a checker that cries wolf is turned off."""
    paths = list(RESULTS.glob("check_*.json"))
    assert {"check_cpu", "check_h200"} <= {path.stem for path in paths}
    for path in paths:
        found = rows(path.stem)
        assert [(row["op"], row["place"], row["failures"]) for row in found if row["failed"]] == []
        places = {"check_cpu": {"cpu", "emulated"}}.get(path.stem, {"cuda"})
        for place in places:
            expected = {*ops.__all__} - {*NOT_MEASURED.get((path.stem, place), ())}
            assert measured(path.stem, place) == expected, (path.stem, place)
            seeds = [row["seeds"] for row in found if row["place"] == place and row["op"] == "opsmith::mish"]
            assert sum(seeds) >= (20 if path.stem == "check_cpu" else 3)
        assert {row["place"] for row in found} == places and all(row["passed"] for row in found)


def test_no_item_of_the_checklist_fails_on_a_stranger_s_op() -> None:
    found = rows("strangers_cpu")
    assert len(found) >= 30 and {row["level"] for row in found} == {"full"}
    assert [(row["op"], row["failures"]) for row in found if row["failed"] or not row["ok"]] == []


def least_share(row: dict[str, Any]) -> float:
    """Of the speed of a copy, as the issue of the pointwise kernels asks for it."""
    op = row["op"].removeprefix("opsmith::")
    if row["direction"] == "forward":
        return 0.90 if op in ("mish", "gelu") and row["dtype"] == "bfloat16" else 0.95
    return 0.90 if op == "scale_bias_relu" else 0.93


def test_results_of_a_wheel_that_differ_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RESULTS.parent)
    import wheel

    inf, nan = float("inf"), float("nan")
    pairs = {
        "same": ([1.0, inf, nan], [1.0, inf, nan], None), "sign of zero": ([0.0, 1.0], [-0.0, 1.0], 0.0),
        "a step": ([1.0, 2.0 + 2**-22], [1.0, 2.0], 1.0), "NaN": ([1.0, nan], [1.0, 2.0], inf),
        "sign of infinity": ([inf], [-inf], inf), "integers": ([1, 5], [1, 3], 2.0), "none": ([], [], None),
    }  # fmt: skip
    own, others = ({name: [torch.tensor(pair[which])] for name, pair in pairs.items()} for which in (0, 1))
    expected = {name: steps for name, (_, _, steps) in pairs.items() if steps is not None}
    assert wheel.differences(own, others) == expected


@pytest.mark.parametrize(("path", "device"), [("wheel_cpu", "cpu"), ("wheel_h200", "cuda")])
def test_opsmiths_wheel_serves_the_first_process_without_a_compiler(path: str, device: str) -> None:
    """Every op on its samples, with the results of kernels that are compiled there; what differs is within budget."""
    unmeasured = {key: {*NOT_MEASURED.get((path, key), ())} for key in (device, "facts")}
    assert measured(path, device) == {*ops.__all__} - unmeasured[device]
    if unmeasured[device] == {*ops.__all__}:
        pytest.skip(f"there is no {path}.json yet: benchmarks/wheel.py makes it")
    (row,) = rows(path)
    assert (row["device"] == "cpu") is (device == "cpu")
    assert (row["tier"], row["failed"], row["built"]) == ("native", 0, 0)
    assert row["wheel_mb"] < 30 and row["calls"] > 600
    assert max(row["first_call_ms"].values()) < 50
    assert row["times_aten"] <= (1.65 if device == "cpu" else 1.2)
    assert {*COMPARED} - row.keys() == unmeasured["facts"]
    assert row.get("build_seconds", 0) < 20 * 60
    assert row.get("beyond_budget", 0) == 0 and row.get("same_bits", 0) <= row["calls"]


def test_a_new_project_of_every_kind_is_soon_tested() -> None:
    found = {row["kind"]: row for row in rows("new_cpu")}
    assert found.keys() == set(scaffold.KINDS)
    for row in found.values():
        assert row["seconds"] < 90 and row["passed"] >= 35 and row["files_to_read"] <= 12, row


def test_pointwise_kernels_run_at_the_speed_of_memory() -> None:
    own = [row for row in rows("large_h200") if row["contender"] == "opsmith" and "share" in row]
    assert len(own) == 81 and {row["dtype"] for row in own} == {"bfloat16", "float16", "float32"}
    assert all(row["elements"] == 2**27 and row["verified"] for row in own)
    short = [(row["op"], row["sample"], row["dtype"], row["direction"], row["share"]) for row in own
             if row["share"] < least_share(row)]  # fmt: skip
    assert short == []


def least_share_of_rows(op: str, columns: int, direction: str) -> float | None:
    """Of the speed of a copy, as the issue of the row kernels asks for it; None: of this op, it does not."""
    forward = direction == "forward"
    if op == "group_norm_silu":
        return 0.85 if forward else 0.80
    if op == "quantize_rows":
        return 0.90 if forward else None
    if op == "cross_entropy_mean":
        return 0.88 if forward else None
    if op == "add_rms_norm":
        return 0.94
    if forward:
        return 0.92
    to_16384, at_131072 = (0.98, 0.85) if op == "softmax" else (0.90, 0.75)
    return to_16384 if columns <= 16384 else at_131072


def test_row_kernels_run_at_the_speed_of_memory() -> None:
    if not (RESULTS / "large_rows_h200.json").exists():
        pytest.skip(
            "there is no large_rows_h200.json yet: benchmarks/cells.py --suite large-rows --device cuda makes it"
        )
    own = [row for row in rows("large_rows_h200") if row["contender"] == "opsmith"]
    assert {row["dtype"] for row in own} >= {"bfloat16", "float32"} and all(row["verified"] for row in own)
    short = []
    for row in own:
        op, sample, direction = row["op"].partition("::")[2], row["sample"], row["direction"]
        columns = int(sample.rpartition(" x ")[2]) if " x " in sample else 0
        least = least_share_of_rows(op, columns, direction)
        if least is not None and row["share"] < least:
            short.append((op, sample, row["dtype"], direction, row["share"]))
    steps: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in own:
        if row["op"] == "benchmarks::cross_entropy_mean":
            steps.setdefault((row["sample"], row["dtype"]), {})[row["direction"]] = row
    for (sample, dtype), step in steps.items():  # both directions: logits read twice, their gradient written
        forward = step["forward"]
        share = 3 * forward["share"] * forward["us"] / (forward["us"] + step["backward"]["us"])
        if share < 0.85:
            short.append(("cross_entropy_mean", sample, dtype, "both", share))
    assert short == [] and len(steps) == 4


def test_no_cell_of_row_ops_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (RESULTS / "rows_h200.json").exists():
        pytest.skip("there is no rows_h200.json yet: benchmarks/cells.py --suite rows --device cuda makes it")
    monkeypatch.syspath_prepend(RESULTS.parent)
    from cells import lost

    assert lost(rows("rows_h200"), "cuda") == []


def test_nothing_of_tensor_size_is_held_beside_results_and_gradients() -> None:
    own = [row for row in rows("large_h200") if row["contender"] == "opsmith"]
    held = [(row["op"], row["sample"], row["peak_bytes"] / max(1, row["held_bytes"])) for row in own]
    assert [each for each in held if each[2] > 1.02] == []  # partial sums of a column, some for each


@pytest.mark.parametrize(("device", "count"), [("h200", 168), ("cpu", 140)])
def test_every_cell_is_measured_and_reported(device: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RESULTS.parent)
    from cells import lost

    found = rows(f"cells_{device}")
    cells = {tuple(row[key] for key in ("op", "sample", "dtype", "direction")) for row in found}
    assert len(cells) == count
    assert lost(found, "cpu" if device == "cpu" else "cuda") == []
    page = (RESULTS.parents[1] / "docs" / "pointwise.md").read_text()
    assert f"<!-- benchmarks/results/cells_{device}.json -->" in page  # tests/test_docs.py holds the list against it


def test_seeded_faults_are_found_and_many_of_them_by_nothing_else() -> None:
    from checks.mutations import library

    found = rows("mutations_cpu")
    assert len(found) >= 40 and {row["fault"] for row in found} == set(library.every())
    survivors = [row["fault"] for row in found if not row["found"]]
    assert len(survivors) <= 0.05 * len(found), survivors
    let_through = [row for row in found if row["found"] and row["torch"] == "" and row["reproduced"]]
    assert len(let_through) >= 20


def test_an_edited_cu_file_of_an_extension_is_soon_built_again() -> None:
    (row,) = [row for row in rows("build_cpu") if row["source"] == "one .cu file" and "opsmith" in row["headers"]]
    assert row["seconds"] < 15


def test_the_emulator_gives_what_the_gpu_gives() -> None:
    found = rows("agreement_h200")
    assert len({row["kernel"] for row in found if row["of"] != "opsmith.ops"}) >= 25
    assert {row["kernel"].split()[0] for row in found if row["of"] == "opsmith.ops"} >= {
        "opsmith::convrnn", "opsmith::elementwise_mult", "opsmith::mish", "opsmith::polynomial",
    }  # fmt: skip
    assert all(row["met"] and row["ulps"] <= 16 for row in found)
    assert sum(row["equal"] for row in found) > len(found) / 2
    of_integers = [row["equal"] for row in found if row["dtype"] in ("int32", "int64", "uint32")]
    assert of_integers and all(of_integers)
