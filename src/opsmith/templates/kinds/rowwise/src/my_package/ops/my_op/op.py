"""my_op: add the residual, and normalize each row by its root mean square.

This is the specification: each row of the results depends only on the rows at the same position, so opsmith generates
the kernels from it, forward and backward, in CUDA and in C++. It derives the rest too: the schema, vmap, what
torch.compile and torch.export need, and the checks. `opsmith show` lists each part.
"""

from __future__ import annotations

from collections.abc import Iterator

import opsmith
import torch
from torch import Tensor, nn


@opsmith.rowwise("my_package::my_op")
def my_op(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """(y, total): total = x + residual, y = total / sqrt(mean(total^2) + eps) * weight.

    x, residual, y and total are [..., features], weight is [features]; its gradient is summed in the kernel."""
    total = x + residual
    return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * weight, total


# Generated kernels of rows write new tensors, so this one has no kernel: it is plain PyTorch, and saves no time.


@opsmith.op("my_package::my_op_", mutates_args=("x", "residual"))
def my_op_(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> None:
    """my_op in place: x becomes y, and residual becomes total."""
    residual.add_(x)
    x.copy_(residual * torch.rsqrt(residual.square().mean(-1, keepdim=True) + eps) * weight)


# Samples: the calls that check and bench make, and whose kernels `opsmith build` compiles. Small ones, and on a GPU one
# that is worth timing. Checks change them: other strides, sizes, dtypes, special values.


@my_op.register_samples
@my_op_.register_samples
def samples(device: torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    rows = 4096 if torch.device(device).type == "cuda" else 16
    for shape in [(4, 50), (0, 8), (rows, 1024)]:
        x, residual = torch.randn(2, *shape, device=device, dtype=dtype)
        weight = torch.randn(shape[-1], device=device, dtype=dtype)
        yield opsmith.Sample(args=(x, residual, weight), name="x".join(map(str, shape)))


# Cost: the least that a call must do. bench compares the measured time with it.


@my_op.register_cost
@my_op_.register_cost
def cost(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> opsmith.Cost:
    return opsmith.Cost(bytes=4 * x.nbytes + weight.nbytes, flops=5 * x.numel())


class MyOp(nn.Module):
    """(y, total) for x and residual [..., features], with a learned weight [features]."""

    def __init__(
        self,
        features: int,
        eps: float = 1e-6,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features, device=device, dtype=dtype))

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        if residual.shape != x.shape or self.weight.shape != x.shape[-1:]:
            raise ValueError(
                f"MyOp: x is {list(x.shape)} and residual {list(residual.shape)}; "
                f"both must be [..., features], with {len(self.weight)} features"
            )
        y, total = my_op(x, residual, self.weight, self.eps)
        return y, total
