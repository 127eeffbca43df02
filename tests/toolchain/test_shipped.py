"""A package knows which major version of CUDA its prebuilt GPU kernels are for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from opsmith.toolchain import shipped


@pytest.mark.parametrize(
    ("manifest", "torch", "expected"),
    [
        ({"cuda": 13}, "12.8", ("13", "12")),
        ({"cuda": 12}, "13.0", ("12", "13")),
        ({"cuda": 13}, "13.2", None),
        ({"cuda": 13}, None, None),  # torch for CPUs
        ({"cuda": None}, "13.0", None),  # built without CUDA
        ({}, "13.0", None),  # by an older opsmith
        ([], "13.0", None),
    ],
)
def test_a_package_that_is_built_for_another_cuda_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: object, torch: str | None, expected: object
) -> None:
    package = ModuleType("shipped_package")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setattr(shipped, "torch_cuda_version", lambda: torch)
    assert shipped.other_cuda("shipped_package.ops") is None, "nothing is prebuilt"
    (tmp_path / "prebuilt").mkdir()
    (tmp_path / "prebuilt" / "manifest.json").write_text(json.dumps(manifest))
    assert shipped.other_cuda("shipped_package.ops") == expected
