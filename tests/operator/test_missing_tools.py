"""A kernel that cannot be compiled where it runs: the reference runs, with one warning; prebuilt kernels still work."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, errors
from opsmith.runtime import execution

pytestmark = pytest.mark.usefixtures("tier")
ONLY_FLOAT32 = "the kernel of float64 is not built"


def doubled(x: Tensor) -> Tensor:
    return x + x


def doubled_(x: Tensor) -> None:
    x.add_(x)


def kernel_of(op: Op) -> list[torch.dtype]:
    """Registers a kernel that is there for float32 and cannot be compiled for float64; the dtypes of its calls."""
    calls: list[torch.dtype] = []

    @op.register_kernel("cpu")
    def _(x: Tensor) -> Any:
        calls.append(x.dtype)
        if x.dtype is torch.float64:
            raise errors.NvrtcNotFoundError(ONLY_FLOAT32, "cuda13")
        return x * 2

    return calls


@pytest.fixture
def _prebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the tests were a package with prebuilt files."""
    monkeypatch.setattr(execution, "ships_prebuilt", lambda module: True)


@pytest.mark.usefixtures("_prebuilt")
def test_a_call_that_is_not_prebuilt_leaves_the_others_to_the_kernel(fresh: Callable[[str], str]) -> None:
    op = opsmith.op(fresh("doubled"))(doubled)
    calls = kernel_of(op)
    single, double = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64)
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        for x in (single, double, single, double):
            assert torch.equal(op(x), doubled(x))
    assert calls == [torch.float32, torch.float64] * 2
    (warning,) = met
    assert f"{op.name} is not prebuilt for x float64 [2, 3] on cpu" in str(warning.message)
    assert ONLY_FLOAT32 in str(warning.message)
    assert warning.filename == __file__, "the line of the call, not one of opsmith"


def test_a_gpu_that_the_compiler_does_not_know_is_served_by_the_reference(fresh: Callable[[str], str]) -> None:
    op = opsmith.op(fresh("doubled"))(doubled)

    @op.register_kernel("cpu")
    def _(x: Tensor) -> Tensor:
        raise errors.UnsupportedArchError("sm_150", "NVRTC 13.0", ["sm_90", "sm_120"])

    with pytest.warns(errors.ReferenceRunsWarning, match=r"NVRTC 13\.0 cannot compile for 'sm_150'"):
        assert torch.equal(op(torch.ones(2)), doubled(torch.ones(2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(op(torch.ones(2)), doubled(torch.ones(2)))


def test_without_prebuilt_files_a_kernel_is_tried_once(fresh: Callable[[str], str]) -> None:
    op = opsmith.op(fresh("doubled"))(doubled)
    calls = kernel_of(op)
    double = torch.ones(2, dtype=torch.float64)
    with pytest.warns(errors.ReferenceRunsWarning, match=f"cannot compile the kernel of {op.name} for cpu here"):
        op(double)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(op(double), doubled(double))
    assert calls == [torch.float64]


@pytest.mark.usefixtures("_prebuilt")
def test_in_place_a_kernel_that_may_have_begun_raises(fresh: Callable[[str], str]) -> None:
    """The reference would begin with inputs that the kernel's earlier launches have changed."""
    op = opsmith.op(fresh("doubled_"), mutates_args=("x",))(doubled_)

    @op.register_kernel("cpu")
    def _(x: Tensor) -> None:
        x.mul_(2)
        if x.dtype is torch.float64:
            raise errors.NvrtcNotFoundError(ONLY_FLOAT32, "cuda13")

    op(torch.ones(2))
    with pytest.raises(errors.NvrtcNotFoundError, match=ONLY_FLOAT32):
        op(torch.ones(2, dtype=torch.float64))


@pytest.mark.usefixtures("_prebuilt")
def test_a_kernel_chosen_by_name_raises(fresh: Callable[[str], str]) -> None:
    op = opsmith.op(fresh("doubled"))(doubled)

    @op.register_kernel("cpu", name="mine")
    def _(x: Tensor) -> Any:
        raise errors.NvrtcNotFoundError(ONLY_FLOAT32, "cuda13")

    with op.using("mine"), pytest.raises(errors.NvrtcNotFoundError, match=ONLY_FLOAT32):
        op(torch.ones(2))
