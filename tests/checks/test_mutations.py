"""Tests of the checker: every fault seeded into a sound op is found, and a sound op passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opsmith

from . import decorated, reproductions

HERE = Path(__file__).parent / "mutations"
SOUND = (
    "softsign", "shifted", "normalised", "moments", "clipped_", "softmax", "layer_norm", "log_sums",
    "quantised", "picked",
)  # fmt: skip
# One per theme, because a process for each takes seconds; `make check-full` runs them all.
REPRODUCED = (
    "factor_forgotten", "shape_of_another_argument", "last_elements_of_a_vector", "strides_ignored", "no_batching_rule",
    "bounds_check_missing", "leaves_its_tail_unwritten", "other_side_at_the_kink", "cannot_take_nothing",
)  # fmt: skip


def seeded() -> list[str]:
    return [name for file in sorted(HERE.glob("*.py")) for name in decorated(file, "mutation")]


def checked(op: Any, where: str, level: str, items: list[str]) -> opsmith.checks.Report:
    return opsmith.check(op, device="cpu", emulate=where == "emulated", level=level, items=items)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", seeded())
def test_a_seeded_fault_is_found(name: str) -> None:
    from .mutations import library

    fault = library.every()[name]
    for item in fault.found_by:
        report = checked(fault.op, fault.where, fault.level, [item])
        if report.failures:
            assert report.failures[0].message
            assert "op" in report.failures[0].reproduction
            return
    pytest.fail(f"{fault.story} None of {', '.join(fault.found_by)} finds it")


@pytest.mark.parametrize("name", SOUND)
def test_the_ops_that_faults_are_seeded_into_are_sound(name: str) -> None:
    from .mutations import sound

    report = opsmith.check(getattr(sound, name)(f"mutated::sound_{name}"), device="cpu")
    # Kernels in torch's operators hold more than one that is fused, and may take more dtypes at once.
    kernels_of_torch = {"peak_memory", "dtypes"} if name == "layer_norm" else set()
    assert {item.name for item in report.failures} <= kernels_of_torch, report


@pytest.mark.parametrize("name", REPRODUCED)
def test_the_reproduction_of_a_failure_raises_in_a_new_process(name: str) -> None:
    from .mutations import library

    fault = library.every()[name]
    failure = next(
        report.failures[0]
        for item in fault.found_by
        if (report := checked(fault.op, fault.where, fault.level, [item])).failures
    )
    ran = reproductions.run(failure.reproduction)
    assert ran.returncode == 1, f"{failure.reproduction}\n{ran.stdout}{ran.stderr}"
    assert "Traceback" in ran.stderr


def test_there_are_more_than_forty_faults_of_every_theme() -> None:
    from .mutations import library

    faults = library.every()
    assert set(faults) == set(seeded()) and len(faults) >= 40
    assert {fault.theme for fault in faults.values()} == set(library.THEMES)
    assert all(fault.story.endswith(".") for fault in faults.values())
