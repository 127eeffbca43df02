"""What is not finished, in one place: ops of rows have no CUDA kernels yet. A test of the CUDA kernels of every shipped
op asks here, and skips with the reason."""

from __future__ import annotations

import pytest

import opsmith

REASON = "the CUDA kernels of row programs are not finished (issue 21)"


def is_of_rows(op: opsmith.Op) -> bool:
    """Whether an op is declared with opsmith.rowwise."""
    return op.is_generated and not op._families.default.forward.reference.elementwise


def skip_rows_on_cuda(op: opsmith.Op, place: str) -> None:
    if place in ("cuda", "emulated") and is_of_rows(op):
        pytest.skip(REASON)
