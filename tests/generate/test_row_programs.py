"""Random row programs: values and gradients of their kernels against the reference in float64."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, note, seed, settings
from hypothesis import strategies as st

import opsmith
from opsmith.errors import NotRowwiseError

from .row_programs import RowProgram, programs, tensors

COUNTER = itertools.count()
WIDTHS = [1, 2, 7, 16, 33, 200, 1031]
EMULATED_WIDTHS = [1, 7, 16, 64, 200, 333, 1024, 2048]
"""Of lanes of a warp, of a block, and of clusters."""
CUDA_WIDTHS = [*EMULATED_WIDTHS, 4096, 7777, 16384, 50257, 131072]


def listed(returned: Any) -> list[torch.Tensor]:
    return list(returned) if isinstance(returned, (tuple, list)) else [returned]


def with_gradients(function: Any, arguments: Any, seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The results, and the gradients of the floating arguments, on the CPU."""
    given = [
        a.detach().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments
    ]
    results = listed(function(*given))
    generator = torch.Generator().manual_seed(seed)
    grads = [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.device, r.dtype) for r in results]
    leaves = [a for a in given if isinstance(a, torch.Tensor) and a.requires_grad]
    found = torch.autograd.grad(results, leaves, grads, allow_unused=True, materialize_grads=True)
    return [r.detach().cpu() for r in results], [gradient.cpu() for gradient in found]


def assert_close(actual: list[torch.Tensor], single: list[torch.Tensor], exact: list[torch.Tensor]) -> None:
    """The error is at most a few times that of the reference in the same dtype, or of the last bits of the largest
    value; of 1 where all are smaller, because they may be what is left of larger terms."""
    for ours, theirs, right in zip(actual, single, exact, strict=True):
        assert ours.shape == right.shape and ours.dtype == theirs.dtype
        if ours.numel() == 0:
            continue
        assert torch.equal(ours.isnan(), right.isnan()) and torch.equal(ours.isinf(), right.isinf())
        rounding = torch.finfo(ours.dtype).eps * right.abs().nan_to_num(0, 0, 0).max().clamp(min=1)
        allowed = 8 * (theirs.double() - right).abs().nan_to_num(0, 0, 0).max() + 64 * rounding
        error = (ours.double() - right).abs().nan_to_num(0, 0, 0).max()
        assert error <= allowed, (error, allowed)


def check(program: tuple[RowProgram, int], data: Any, dtype: torch.dtype, place: str) -> None:
    made, results = program
    note(made.source)
    reference = made.function(results)
    try:
        op = opsmith.rowwise(f"row_programs::op{next(COUNTER)}")(reference)
    except NotRowwiseError as refused:
        assume("no common shape" not in str(refused))  # nothing that is used says that two tensors are as wide
        raise
    arguments = data.draw(tensors(dtype, {"cpu": WIDTHS, "emulated": EMULATED_WIDTHS, "cuda": CUDA_WIDTHS}[place]))
    doubles = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]
    given_to_op = [a.cuda() if isinstance(a, torch.Tensor) and place == "cuda" else a for a in arguments]
    with opsmith.emulate(checks=data.draw(st.booleans())) if place == "emulated" else contextlib.nullcontext():
        actual, gradients = with_gradients(op, given_to_op, 5)
    single, single_gradients = with_gradients(reference, arguments, 5)
    exact, exact_gradients = with_gradients(reference, doubles, 5)
    assert_close(actual, single, exact)
    assert_close(gradients, single_gradients, exact_gradients)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.data())
def test_a_random_program_has_the_references_values_and_gradients(program: tuple[RowProgram, int], data: Any) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        check(program, data, dtype, "cpu")


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.sampled_from([torch.float32, torch.bfloat16, torch.float64]), st.data())
def test_so_has_its_emulated_cuda_kernel(program: tuple[RowProgram, int], dtype: torch.dtype, data: Any) -> None:
    check(program, data, dtype, "emulated")


@pytest.mark.gpu
@pytest.mark.filterwarnings("error::opsmith.errors.ReferenceRunsWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("part", range(3))  # for the workers of pytest-xdist
def test_so_has_its_cuda_kernel(part: int, dtype: torch.dtype) -> None:
    @seed(part)
    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(programs(), st.data())
    def holds(program: tuple[RowProgram, int], data: Any) -> None:
        check(program, data, dtype, "cuda")

    holds()
