"""Every shipped op passes the checklist: on the CPU, and its CUDA kernels in the emulator. `make check-full` does more.

Ops are found by their folders and items by their files: a new one is checked with no line here.
"""

from __future__ import annotations

import pytest

import opsmith
from opsmith.checks import Report
from opsmith.kernels import GeneratedKernel

REPRESENTATIVES = ("scale_bias_relu", "swiglu", "rms_norm")
"""Generated ops on which every item is checked, on the CPU and emulated: how a kernel walks through memory, and what
torch's transforms do with an op, does not depend on its formula. With a gradient that is summed, without, and of rows.
`make check-full` runs every item on every op."""
OF_THE_FORMULA = ["values", "gradients", "second_gradients", "special_values", "kernels"]
OF_ROWS = {False: [*OF_THE_FORMULA, "vmap"], True: ["values", "gradients", "kernels"]}
"""Of other row ops, on the CPU and emulated: which dimensions a row has is up to the op, and its functions of elements
are those of pointwise ops."""


def details(report: Report) -> str:
    failures = [f"{item.name}: {item.message}\n{item.reproduction}" for item in report.failures]
    return "\n\n".join([str(report), *failures])


@pytest.mark.long
@pytest.mark.parametrize("place", ["cpu", "emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", opsmith.ops.names())
def test_the_checklist_passes(name: str, place: str) -> None:
    op = getattr(opsmith.ops, name)
    emulate = place == "emulated"
    report = opsmith.check(op, device=None if emulate else place, emulate=emulate, items=items_for(op, emulate))
    assert report.ok, details(report)
    assert {"values", "gradients", "kernels"} <= {item.name for item in report.passed}
    assert not emulate or not report.skipped


def items_for(op: opsmith.Op, emulate: bool) -> list[str] | None:
    """The items to check here; None: all."""
    if not default_is_generated(op) or op.name.partition("::")[2] in REPRESENTATIVES:
        return None
    is_of_rows = op.is_generated and not op._families.default.forward.reference.elementwise
    return OF_ROWS[emulate] if is_of_rows else OF_THE_FORMULA


def default_is_generated(op: opsmith.Op) -> bool:
    """Whether the kernel that runs by default is: `kernels` runs the op's other kernels, each other item only this."""
    kernels = list(op.kernels["cuda"].values())
    return isinstance(next((kernel for kernel in kernels if kernel.is_default), kernels[0]), GeneratedKernel)
