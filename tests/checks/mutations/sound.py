"""The ops that faults are seeded into. Each is sound here, which tests check.

softsign    x / (1 + |x|) * scale             a result for each element, a float argument
shifted     relu(x * scale + bias)            a parameter's gradient is a sum over rows
normalised  x / rms(x) * weight               a reduction over rows
moments     the mean and variance of rows     two results
clipped_    x.clamp_(-limit, limit)           in place
softmax     of rows                           its backward kernel goes by the stored result
layer_norm  of rows                           gradients that all but cancel in short rows
log_sums    log(sum(exp(x))) of rows          numbers whose exponential is infinite
quantised   round(x / scale) and the scale    a result of integers that come from rounding
picked      table[index]                      integers that are indexes
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import opsmith

from .library import samples


def softsign_reference(x: Tensor, scale: float = 1.0) -> Tensor:
    return x / (1 + x.abs()) * scale


def shifted_reference(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
    return torch.relu(x * scale + bias)


def normalised_reference(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def moments_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean(-1), x.var(-1, unbiased=False)


def clipped_reference_(x: Tensor, limit: float = 1.0) -> None:
    x.clamp_(-limit, limit)


def softsign(name: str) -> opsmith.Op:
    op = opsmith.op(name)(softsign_reference)
    samples(op, lambda size, device, dtype: (2 * torch.randn(size, device=device, dtype=dtype), 1.5), (6, 37), (8, 16))
    return op


def softsign_kernel(x: Tensor, scale: float) -> Tensor:
    """Right: in float32 for half types, rounded once."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return (wide / (1 + wide.abs()) * scale).to(x.dtype)


def softsign_backward(grads: tuple[Tensor], x: Tensor, scale: float, *, needs: Any) -> Tensor:
    """Right."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return (grads[0].to(wide.dtype) * scale / (1 + wide.abs()) ** 2).to(x.dtype)


def shifted(name: str) -> opsmith.Op:
    op = opsmith.op(name)(shifted_reference)
    samples(op, shifted_arguments, (6, 37), (16, 16), (3, 5, 8))
    return op


def shifted_arguments(size: tuple[int, ...], device: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    return torch.randn(size, device=device, dtype=dtype), torch.randn(size[-1], device=device, dtype=dtype), 1.5


def normalised(name: str) -> opsmith.Op:
    op = opsmith.op(name)(normalised_reference)
    samples(op, normalised_arguments, (6, 37), (16, 16), (2, 3, 64))
    return op


def normalised_arguments(size: tuple[int, ...], device: Any, dtype: torch.dtype) -> tuple[Any, ...]:
    return torch.randn(size, device=device, dtype=dtype), torch.rand(size[-1], device=device, dtype=dtype) + 0.5


def normalised_kernel(x: Tensor, weight: Tensor) -> Tensor:
    """Right."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6) * weight.to(wide.dtype)).to(x.dtype)


def moments(name: str) -> opsmith.Op:
    op = opsmith.op(name)(moments_reference)
    samples(op, lambda size, device, dtype: (torch.randn(size, device=device, dtype=dtype) + 1,), (6, 37), (16, 16))
    return op


def moments_kernel(x: Tensor) -> tuple[Tensor, Tensor]:
    """Right."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean = wide.mean(-1)
    return mean.to(x.dtype), (wide - mean[..., None]).square().mean(-1).to(x.dtype)


def clipped_(name: str) -> opsmith.Op:
    op = opsmith.op(name, mutates_args=("x",))(clipped_reference_)
    samples(op, lambda size, device, dtype: (2 * torch.randn(size, device=device, dtype=dtype), 1.5), (6, 37), (8, 16))
    return op


def softmax(name: str) -> opsmith.Op:
    op = opsmith.op(name)(softmax_reference)
    samples(op, lambda size, device, dtype: (torch.randn(size, device=device, dtype=dtype),), (6, 37), (16, 16))
    op.register_kernel("cpu", lambda x: _wide(x).softmax(-1).to(x.dtype))

    @op.register_backward("cpu")
    def _(grads: tuple[Tensor], output: Tensor, *, needs: Any) -> Tensor:
        probabilities, grad = _wide(output), _wide(grads[0])
        total = (grad * probabilities).sum(-1, keepdim=True)
        return (probabilities * (grad - total)).to(output.dtype)

    return op


def softmax_reference(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def layer_norm(name: str) -> opsmith.Op:
    op = opsmith.op(name)(layer_norm_reference)
    samples(op, normalised_arguments, (6, 37), (16, 16))

    @op.register_kernel("cpu")
    def _(x: Tensor, weight: Tensor) -> Tensor:
        wide = _wide(x)
        apart = wide - wide.mean(-1, keepdim=True)
        return (apart * torch.rsqrt(apart.square().mean(-1, keepdim=True) + 1e-5) * weight.to(wide.dtype)).to(x.dtype)

    @op.register_backward("cpu")
    def _(grads: tuple[Tensor], x: Tensor, weight: Tensor, *, needs: Any) -> Any:
        wide = _wide(x)
        apart = wide - wide.mean(-1, keepdim=True)
        inverse = torch.rsqrt(apart.square().mean(-1, keepdim=True) + 1e-5)
        along, grad = apart * inverse, _wide(grads[0])
        scaled = grad * weight.to(wide.dtype)
        centred = scaled - scaled.mean(-1, keepdim=True) - along * (scaled * along).mean(-1, keepdim=True)
        return (centred * inverse).to(x.dtype), (grad * along).sum(tuple(range(x.ndim - 1))).to(weight.dtype)

    return op


def layer_norm_reference(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight)


def log_sums(name: str) -> opsmith.Op:
    op = opsmith.op(name)(log_sums_reference)
    samples(op, lambda size, device, dtype: (torch.randn(size, device=device, dtype=dtype),), (6, 37), (16, 16))
    return op


def log_sums_reference(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1)


def quantised(name: str) -> opsmith.Op:
    op = opsmith.op(name)(quantised_reference)
    samples(op, lambda size, device, dtype: (torch.randn(size, device=device, dtype=dtype),), (6, 37), (16, 16))
    return op


def quantised_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127
    return torch.round(x / scale).clamp(-127, 127).to(torch.int8), scale


def picked(name: str) -> opsmith.Op:
    op = opsmith.op(name)(picked_reference)

    def arguments(size: tuple[int, ...], device: Any, dtype: torch.dtype) -> tuple[Any, ...]:
        return torch.randn(size, device=device, dtype=dtype), torch.randint(0, size[0], (11,), device=device)

    samples(op, arguments, (6, 37), (16, 16))
    return op


def picked_reference(table: Tensor, index: Tensor) -> Tensor:
    return table[index]
