"""The test file that docs/check.md shows, as a user would have it."""

from __future__ import annotations

import pytest
import torch

# [check_op]
import opsmith.testing
from opsmith import ops

test_square = opsmith.testing.check_op(ops.square, device="cpu")  # test_square[values], test_square[gradients], ...
# [check_op]


# [calls]
def test_a_row_of_zeros() -> None:  # one call: results and gradients are the reference's, within rounding
    opsmith.testing.assert_matches(ops.square, torch.zeros(1, 1000))


@pytest.mark.parametrize("opsmith_emulate", range(3), indirect=True)  # three orders of blocks and threads
def test_the_cuda_kernel(opsmith_emulate: object) -> None:
    opsmith.testing.assert_matches(ops.square, torch.randn(1000))


# [calls]
