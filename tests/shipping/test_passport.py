"""A package carries its check and benchmark results, and `opsmith show` prints them on the user's machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsmith.errors import PassportError
from opsmith.shipping.passport import lines, passport, prebuilt_line

OP = "mylib::bent"


def checked(**changes: Any) -> dict[str, Any]:
    items = [{"name": "values", "status": "passed"}, {"name": "streams", "status": "skipped"}]
    environment = {"torch": "2.11.0", "machine": "NVIDIA H200"}
    report = {"op": OP, "device": "cuda", "level": "full", "emulated": False, "ok": True, "items": items}
    return {"reports": [{**report, "environment": environment, **changes}]}


def timed() -> dict[str, Any]:
    cell = {"op": OP, "sample": "2^27", "dtype": "bfloat16", "direction": "forward", "limit": "memory"}
    rows = [
        {**cell, "contender": "opsmith", "us": 130.0, "share": 1.02, "notes": []},
        {**cell, "contender": "compile", "us": 260.0},
        {**cell, "op": "mylib::other", "contender": "opsmith", "us": 1.0},
    ]
    return {
        "environment": {"device": "NVIDIA H200", "torch": "2.11.0", "opsmith": "0.1.0", "date": "today"},
        "rows": rows,
    }


def wrote(folder: Path, **files: Any) -> list[Path]:
    for name, contents in files.items():
        (folder / name).write_text(json.dumps(contents))
    return [folder / name for name in files]


def test_checks_and_times_of_the_packages_ops_are_printed(tmp_path: Path) -> None:
    held = passport(wrote(tmp_path, check=checked(), bench=timed()), [OP])
    assert [check["items"] for check in held["checks"]] == [["values"]]
    assert lines(OP, held) == [
        ("checked", "1 items passed, 1 do not apply or were skipped; level full, NVIDIA H200, torch 2.11.0"),
        (
            "speed",
            "forward, bfloat16, 2^27: 130 us, 102% of the memory limit, 2 times as fast as compile; "
            "NVIDIA H200, torch 2.11.0",
        ),
    ]
    assert not lines("mylib::other", held)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (checked(ok=False, items=[{"name": "values", "status": "failed"}]), "is not ok: its check failed: values"),
        (checked(ok=False), "is not ok: its check is not complete"),
        ({"rows": []}, "is not what `opsmith check --json` or `opsmith bench --json` writes"),
        ([], "is not what"),
        ({"reports": [{}]}, "is not what"),
        ({"reports": [1]}, "is not what"),
        ({"reports": None}, "is not what"),
        ({"environment": {}, "rows": [{}]}, "is not what"),
        (checked(op="mylib::other"), "no result of mylib::bent is in these files"),
    ],
)
def test_results_that_prove_nothing_are_refused(tmp_path: Path, contents: Any, message: str) -> None:
    with pytest.raises(PassportError, match=message):
        passport(wrote(tmp_path, results=contents), [OP])


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PassportError, match=r"none cannot be read: No such file or directory\.$"):
        passport([tmp_path / "none"], [OP])
    (tmp_path / "text").write_text("no JSON")
    with pytest.raises(PassportError, match="text is not JSON: Expecting value"):
        passport([tmp_path / "text"], [OP])


def test_prebuilt_kernels_are_named_by_their_places() -> None:
    kernels = [{"op": OP, "place": place, "key": place} for place in ("DEFAULT", "AVX2", "sm_90", "compute_90")]
    assert prebuilt_line([OP], {"kernels": kernels}) == "4 kernels, for AVX2, any processor, PTX 90, sm_90"
    library = {"op": OP, "place": "any", "key": "library"}
    assert prebuilt_line([OP], {"kernels": [library]}) == "1 kernel, for any processor"
    assert prebuilt_line([OP], {"kernels": [library, kernels[0]]}) == "2 kernels, for any processor"
    assert prebuilt_line(["mylib::other"], {"kernels": kernels}) is None
