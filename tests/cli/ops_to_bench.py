"""Ops for `opsmith bench`: a right one, a wrong one."""

import torch

import opsmith


@opsmith.pointwise("bench_tests::scale_add")
def scale_add(x: torch.Tensor, bias: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return x * scale + bias


@scale_add.register_samples
def _(device, dtype):
    yield opsmith.Sample((torch.randn(8, 6, device=device, dtype=dtype), torch.randn(6, device=device, dtype=dtype)))


@opsmith.op("bench_tests::wrong")
def wrong(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@wrong.register_kernel("cpu")
def _(x):
    return x + 2


@wrong.register_samples
def _(device, dtype):
    yield opsmith.Sample((torch.randn(64, device=device, dtype=dtype),), name="64")
