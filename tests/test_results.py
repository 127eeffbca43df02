"""The committed rows show the bars they are there to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsmith import ops

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


def test_no_item_of_the_checklist_fails_on_a_shipped_op() -> None:
    """Over 20 seeds where there is no GPU: a checker that cries wolf is turned off."""
    for path in RESULTS.glob("check_*.json"):
        found = rows(path.stem)
        assert [(row["op"], row["place"], row["failures"]) for row in found if row["failed"]] == []
        assert {row["op"] for row in found} == {f"opsmith::{name}" for name in ops.__all__}, path.stem
        places = {"check_cpu": {"cpu", "emulated"}}.get(path.stem, {"cuda"})
        for place in places:
            seeds = [row["seeds"] for row in found if row["place"] == place and row["op"] == "opsmith::mish"]
            assert sum(seeds) >= (20 if path.stem == "check_cpu" else 3)
        assert {row["place"] for row in found} == places and all(row["passed"] for row in found)


def test_seeded_faults_are_found_and_many_of_them_by_nothing_else() -> None:
    from checks.mutations import library

    if not (RESULTS / "mutations_cpu.json").exists():
        pytest.skip("not measured yet: python benchmarks/mutations.py --reproduce")
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
    assert all(row["equal"] for row in found if row["dtype"] in ("int32", "int64", "uint32"))
