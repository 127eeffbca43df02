"""Every shipped op passes the checklist: on the CPU, and its CUDA kernels in the emulator. `make check-full` does more.

Ops are found by their folders and items by their files: a new one is checked with no line here.
"""

from __future__ import annotations

import pytest

import opsmith
from opsmith.checks import Report


def details(report: Report) -> str:
    failures = [f"{item.name}: {item.message}\n{item.reproduction}" for item in report.failures]
    return "\n\n".join([str(report), *failures])


@pytest.mark.parametrize("place", ["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", opsmith.ops.names())
def test_the_checklist_passes(name: str, place: str) -> None:
    op = getattr(opsmith.ops, name)
    emulate = place == "emulated"
    report = opsmith.check(op, device=None if emulate else place, emulate=emulate)
    assert report.ok, details(report)
    assert {"values", "gradients", "kernels"} <= {item.name for item in report.passed}
    assert not emulate or not report.skipped
