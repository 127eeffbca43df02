"""Every shipped op passes the checklist: on the CPU, and its CUDA kernels in the emulator. `make check-full` does more.

Ops are found by their folders and items by their files: a new one is checked with no line here.
"""

from __future__ import annotations

import pytest

import opsmith
from opsmith.checks import Report
from opsmith.kernels import GeneratedKernel

REPRESENTATIVES = ("scale_bias_relu", "swiglu")
"""Ops whose generated kernels are emulated in every layout and size: how a kernel walks through memory does not depend
on its formula. `make check-full` runs every item on every op."""
OF_THE_FORMULA = ["values", "gradients", "second_gradients", "special_values", "kernels"]


def details(report: Report) -> str:
    failures = [f"{item.name}: {item.message}\n{item.reproduction}" for item in report.failures]
    return "\n\n".join([str(report), *failures])


@pytest.mark.parametrize("place", ["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", opsmith.ops.names())
def test_the_checklist_passes(name: str, place: str) -> None:
    op = getattr(opsmith.ops, name)
    emulate = place == "emulated"
    items = emulated_items(op) if emulate else None
    report = opsmith.check(op, device=None if emulate else place, emulate=emulate, items=items)
    assert report.ok, details(report)
    assert {"values", "gradients", "kernels"} <= {item.name for item in report.passed}
    assert not emulate or not report.skipped


def emulated_items(op: opsmith.Op) -> list[str] | None:
    """The items to run in the emulator; None: all. `kernels` runs the op's other kernels, and each other item only the
    one that is used by default."""
    kernels = list(op.kernels["cuda"].values())
    default = next((kernel for kernel in kernels if kernel.is_default), kernels[0])
    is_generated = isinstance(default, GeneratedKernel)
    return OF_THE_FORMULA if is_generated and op.name.partition("::")[2] not in REPRESENTATIVES else None
