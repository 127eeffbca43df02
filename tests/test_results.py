"""The committed rows show the bars they are there to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def test_an_edited_cu_file_of_an_extension_is_soon_built_again() -> None:
    (row,) = [row for row in rows("build_cpu") if row["source"] == "one .cu file" and "opsmith" in row["headers"]]
    assert row["seconds"] < 15
