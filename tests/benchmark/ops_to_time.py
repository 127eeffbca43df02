"""Small ops that bench is tried on, declared under names that no test shares."""

from __future__ import annotations

from collections.abc import Callable

import torch

import opsmith

Fresh = Callable[[str], str]


def scale_add(fresh: Fresh) -> opsmith.Op:
    """A pointwise op of two tensors and a number."""

    def scale_add(x: torch.Tensor, bias: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale + bias

    op = opsmith.pointwise(fresh("scale_add"))(scale_add)
    op.register_samples(
        lambda device, dtype: [
            opsmith.Sample(
                (torch.randn(8, 6, device=device, dtype=dtype), torch.randn(6, device=device, dtype=dtype)), {}, "8x6"
            ),
            opsmith.Sample((torch.zeros(0, 6), torch.zeros(6)), {}, "empty"),
        ]
    )
    return op


def cubed(fresh: Fresh) -> opsmith.Op:
    """An op with no kernel but its reference, which is not known to be pointwise."""

    def cubed(x: torch.Tensor) -> torch.Tensor:
        return x * x * x

    op = opsmith.op(fresh("cubed"))(cubed)
    op.register_samples(
        lambda device, dtype: [opsmith.Sample((torch.randn(64, device=device, dtype=dtype),), {}, "64")]
    )
    return op


def halve_(fresh: Fresh) -> opsmith.Op:
    """In place."""

    def halve_(x: torch.Tensor) -> None:
        x.mul_(0.5)

    op = opsmith.op(fresh("halve_"), mutates_args=("x",))(halve_)
    op.register_samples(
        lambda device, dtype: [opsmith.Sample((torch.randn(64, device=device, dtype=dtype),), {}, "64")]
    )
    return op
