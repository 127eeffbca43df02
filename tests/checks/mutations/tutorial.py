"""The faults of the tutorials that opsmith is to replace (the end of ROWS.md), each as a small op.

Those that need a GPU to show, the default stream, a device-wide synchronise, a missing device guard, an unchecked
launch, are in tests/checks/faulty, and `opsmith lint` finds them in the source.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import opsmith
from opsmith.checks import adopt

from . import sound
from .cuda import _doubled
from .library import mutation
from .registration import _fake, _library, _operator


class _AddTwo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.data.add_(2)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad


def _relu(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def added_two(x: Tensor) -> Tensor:
    return x + 2


@mutation("tutorial", "inputs_unchanged", "opcheck", "values", "determinism")
def input_changed_behind_autograds_back(name: str) -> Any:
    """The kernel adds in place to the tensor it is given; whoever else holds it has other numbers now."""
    _library(name, "(Tensor x) -> Tensor", lambda x: _AddTwo.apply(x), "CPU")
    _fake(name)
    torch.library.register_autograd(name, lambda ctx, grad: grad)
    return adopt(_operator(name), added_two)


@mutation("tutorial", "values", "dtypes", "generated")
def float32_alone(name: str) -> opsmith.Op:
    """data_ptr<float>() whatever the dtype: half types are read as floats."""
    op = sound.softsign(name)

    def kernel(x: Tensor, scale: float) -> Tensor:
        count = x.numel() * x.element_size() // 4
        seen = torch.zeros(x.numel())
        flat = x.contiguous().view(-1).view(torch.uint8)[: count * 4].view(torch.float32)[: x.numel()]
        seen[: flat.numel()] = flat
        return sound.softsign_kernel(seen.view(x.shape), scale).to(x.dtype)

    op.register_kernel("cpu", kernel)
    return op


@mutation("tutorial", "sizes", "generated")
def empty_tensors_crash(name: str) -> opsmith.Op:
    """A grid of zero blocks: the launch fails, here as there."""
    op = sound.softsign(name)

    def kernel(x: Tensor, scale: float) -> Tensor:
        blocks = -(-x.numel() // 256)
        if blocks == 0:
            raise RuntimeError("invalid configuration argument")
        return sound.softsign_kernel(x, scale)

    op.register_kernel("cpu", kernel)
    return op


@mutation("tutorial", "values", "sizes", "generated", "outputs_written", where="emulated")
def counts_in_32_bits(name: str) -> opsmith.Op:
    """The product of row and width is taken in int. The emulator sees the overflow where a constant row is added that a
    large tensor would have."""
    body = (
        "  const int i = blockIdx.x * 128 + threadIdx.x;\n"
        "  const int width = 65536;\n"
        "  const int far = (i + 40000) * width;\n"
        "  if (i < n) y[i] = far == static_cast<int>(n) ? 0.0f : 2.0f * x[i];\n"
    )
    return _doubled(name, body)


@mutation("tutorial", "peak_memory")
def gradient_by_several_more_kernels(name: str) -> Any:
    """Mask, product and sum, each a pass over memory with a new tensor."""
    _library(name, "(Tensor x) -> Tensor", lambda x: x.clamp(min=0), "CPU")
    _fake(name)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        mask = (x > 0).to(torch.float64)
        product = mask * grad
        kept = product * 1.0
        return (kept + 0 * product).to(grad.dtype)

    torch.library.register_autograd(name, backward, setup_context=setup_context)
    return adopt(_operator(name), _relu)


@mutation("tutorial", "sizes", "values", "generated", "determinism", "outputs_written")
def empty_tensors_are_silent_and_the_launch_is_unchecked(name: str) -> opsmith.Op:
    """A failed launch that is not checked: the result is returned unwritten."""
    op = sound.softsign(name)

    def kernel(x: Tensor, scale: float) -> Tensor:
        out = torch.full_like(x, 7.0)
        if x.numel() <= 256:  # beyond, the launch asks for more threads than a block has
            out.copy_(sound.softsign_kernel(x, scale))
        return out

    op.register_kernel("cpu", kernel)
    return op
