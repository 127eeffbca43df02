"""Sound ops that opsmith was not tuned for pass: no failure, nothing left out. See `make check-strangers`."""

from __future__ import annotations

import pytest

import opsmith

from .stranger_ops import EMULATED, OPS
from .test_shipped import details, items_for


@pytest.mark.parametrize("name", OPS)
def test_a_sound_op_passes(name: str) -> None:
    report = opsmith.check(OPS[name])
    assert report.ok, details(report)
    assert not [item for item in report.skipped if not item.message]
    assert "values" in {item.name for item in report.passed}


@pytest.mark.parametrize("name", EMULATED)
def test_a_sound_cuda_kernel_passes(name: str) -> None:
    report = opsmith.check(EMULATED[name], emulate=True, items=items_for(EMULATED[name], True))
    assert report.ok, details(report)
    assert "values" in {item.name for item in report.passed}
