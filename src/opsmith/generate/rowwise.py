"""opsmith.rowwise: an op whose kernels are generated from its reference, a function of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..operator.op import Op, declare
from ..operator.samples import Sample
from .generation import LoopGeneration


def rowwise(name: str, prebuild: Callable[..., Iterator[Sample]] | None = None) -> Callable[[Callable[..., Any]], Op]:
    """Makes a complete operator with generated kernels from a PyTorch function of rows.

    >>> @opsmith.rowwise("mylib::rms_norm")
    ... def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    ...     return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight

    The function may do what a pointwise one may (see `opsmith.pointwise`), and also reduce rows: sum, mean, amax, var,
    softmax, logsumexp and so on, several in sequence. All its reductions are over the same dimensions, usually the
    last. The gradients of tensors that rows share are summed in the same kernel. Anything else raises NotRowwiseError
    at declaration, with its line: use `opsmith.op` for that.

    Args:
        name: 'namespace::name', as in torch.ops.
        prebuild: further calls that `opsmith build` builds kernels for, as a function like `register_samples` takes.
    """
    generator = functools.partial(LoopGeneration, rows=True)
    return lambda function: declare(name, function, (), "keep", generator, prebuild)
