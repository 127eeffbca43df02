"""A library that a package ships is used where it runs: its GPUs, its processor's level and its CUDA are compared."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import opsmith
from opsmith.toolchain import Recipe, portable


def runs_here(
    monkeypatch: pytest.MonkeyPatch, targets: Sequence[str], gpus: Sequence[str], built: int | None, torch: str | None
) -> bool:
    monkeypatch.setattr(portable, "architectures", lambda: tuple(gpus))
    monkeypatch.setattr(portable, "torch_cuda_version", lambda: torch)
    return portable._runs_here(targets, built)


@pytest.mark.parametrize(
    ("targets", "gpus", "expected"),
    [
        (["sm_80"], ["sm_80"], True),
        (["sm_80"], ["sm_86"], True),  # a later GPU of the same generation
        (["sm_86"], ["sm_80"], False),
        (["sm_80"], ["sm_90"], False),
        (["sm_80", "compute_80"], ["sm_90"], True),  # the driver compiles PTX
        (["compute_90"], ["sm_120"], True),
        (["compute_120"], ["sm_90"], False),
        (["sm_80", "sm_90"], ["sm_80", "sm_90"], True),
        (["sm_80"], ["sm_80", "sm_90"], False),  # every GPU of the machine
        (["sm_80"], [], True),
        (["sm_90a"], ["sm_90"], True),
        (["sm_100a"], ["sm_103"], False),  # its features are those of one GPU
        (["compute_90a"], ["sm_90"], True),
        (["compute_90a"], ["sm_100"], False),
    ],
)
def test_a_library_is_used_on_the_gpus_that_it_was_built_for(
    monkeypatch: pytest.MonkeyPatch, targets: list[str], gpus: list[str], expected: bool
) -> None:
    assert runs_here(monkeypatch, targets, gpus, built=13, torch="13.0") is expected


@pytest.mark.parametrize(
    ("built", "torch", "expected"),
    [(13, "13.0", True), (13, "13.2", True), (13, "12.8", False), (12, "13.0", False), (13, None, True)],
)
def test_a_library_with_cuda_is_used_by_a_torch_of_the_same_major_version(
    monkeypatch: pytest.MonkeyPatch, built: int, torch: str | None, expected: bool
) -> None:
    assert runs_here(monkeypatch, ["sm_90"], ["sm_90"], built, torch) is expected


def test_a_library_without_cuda_is_used_by_every_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for torch in ("12.8", "13.0", None):
        assert runs_here(monkeypatch, [], ["sm_90"], None, torch)


@pytest.mark.parametrize(
    ("removed", "expected"),
    [
        (set(), ["x86-64-v4", "x86-64-v3", "x86-64"]),
        ({"avx512bw"}, ["x86-64-v3", "x86-64"]),
        ({"avx512f", "fma"}, ["x86-64"]),
    ],
)
def test_a_processor_runs_the_levels_whose_features_it_has(
    monkeypatch: pytest.MonkeyPatch, removed: set[str], expected: list[str]
) -> None:
    features = set().union(*portable.LEVELS.values()) - removed
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(Path, "read_text", lambda *_: f"model\t\t: 1\nflags\t\t: fpu {' '.join(features)}\n")
    assert portable._own_levels.__wrapped__() == expected


def test_a_library_is_found_by_users_of_another_opsmith(tmp_path: Path) -> None:
    """Its key holds the author's sources and headers, and the interface with opsmith's Python; no other header."""
    shutil.copytree(Path(opsmith.__file__).parent / "include", tmp_path / "include")
    source, header = tmp_path / "own.cpp", tmp_path / "own.h"
    source.write_text('#include <opsmith/kernel.h>\n#include "own.h"\n')
    header.write_text("")
    recipe = Recipe("own", (source,), system_dirs=(tmp_path / "include",))

    def changes(path: Path) -> bool:
        before = portable.library_key(recipe, None)
        path.write_text(path.read_text() + "// edited\n")
        return portable.library_key(recipe, None) != before

    own = {path.name: changes(path) for path in (tmp_path / "include" / "opsmith").glob("*.h")}
    assert [name for name, changed in own.items() if changed] == ["host.h"] and "kernel.h" in own
    assert changes(source) and changes(header)
