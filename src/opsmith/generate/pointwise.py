"""opsmith.pointwise: an op whose kernels are generated from its reference, a function of elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..operator.op import Op, declare
from ..operator.samples import Sample
from .generation import LoopGeneration


def pointwise(
    name: str, mutates_args: Sequence[str] = (), prebuild: Callable[..., Iterator[Sample]] | None = None
) -> Callable[[Callable[..., Any]], Op]:
    """Makes a complete operator with generated kernels from a PyTorch function of elements.

    >>> @opsmith.pointwise("mylib::scale_bias_relu")
    ... def scale_bias_relu(x: torch.Tensor, bias: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    ...     return torch.relu(x * scale + bias)

    Tensors broadcast and promote as in PyTorch. Floats and ints are kernel arguments; the function may branch on bools
    and strings. CUDA and C++ get one fused kernel each for forward and backward: the gradient of a broadcast input is
    summed inside the backward kernel, and second gradients are kernels too. Anything that is not elementwise raises
    NotPointwiseError at declaration, with its line: use `opsmith.op` for that.

    Args:
        name: 'namespace::name', as in torch.ops.
        mutates_args: the tensors that the function changes in place; it returns None, and the op returns them.
        prebuild: further calls that `opsmith build` builds kernels for, as a function like `register_samples` takes.
    """
    return lambda function: declare(name, function, mutates_args, "keep", LoopGeneration, prebuild)
