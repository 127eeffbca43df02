"""Three ops for the tests of list and show: with kernels, with a reference alone, and in place."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith


@opsmith.op("cli_tests::mish")
def mish(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.nn.functional.softplus(x))


@mish.register_kernel("cpu")
def mish_on_cpu(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.nn.functional.softplus(x))


@mish.register_samples
def samples(device: str, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    yield opsmith.Sample(args=(torch.randn(8, device=device, dtype=dtype),))


@opsmith.op("cli_tests::optional_bias")
def optional_bias(x: Tensor, bias: Tensor | None = None, *, negate: bool = False) -> Tensor:
    y = x.clone() if bias is None else x + bias
    return -y if negate else y


@opsmith.op("cli_tests::scale_", mutates_args=("x",))
def scale_(x: Tensor, by: float) -> None:
    x.mul_(by)
