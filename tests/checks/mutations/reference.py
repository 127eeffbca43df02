"""Faults of a reference: plain PyTorch that is not a specification."""

from __future__ import annotations

import random

import torch
from torch import Tensor

import opsmith

from .library import mutation, samples

_calls = [0]


def _declared(name: str, reference: object) -> opsmith.Op:
    op = opsmith.op(name)(reference)  # type: ignore[arg-type]
    samples(op, lambda size, device, dtype: (torch.randn(size, device=device, dtype=dtype),), (6, 37), (8, 16))
    return op


@mutation("reference", "compile", "export", "fake", "opcheck", "vmap")
def branches_on_values(name: str) -> opsmith.Op:
    """It asks a tensor for its value: no tracer gets through."""

    def reference(x: Tensor) -> Tensor:
        return x * 2 if bool((x > 0).any()) else x * 3

    return _declared(name, reference)


@mutation("reference", "determinism", "compile", "values")
def counts_its_calls(name: str) -> opsmith.Op:
    """What it returns depends on how often it has been called."""

    def reference(x: Tensor) -> Tensor:
        _calls[0] += 1
        return x * (1 + _calls[0] % 3)

    return _declared(name, reference)


@mutation("reference", "determinism", "gradients", "values")
def draws_random_numbers(name: str) -> opsmith.Op:
    """Random numbers from outside of torch: no seed of torch's brings the same result again."""

    def reference(x: Tensor) -> Tensor:
        return x * (1 + 1e-3 * random.SystemRandom().random())

    return _declared(name, reference)


@mutation("reference", "gradients", "forward_mode", "functional_transforms")
def detaches(name: str) -> opsmith.Op:
    """A detach in the reference cuts the gradient that the backward kernel gives."""

    def reference(x: Tensor) -> Tensor:
        return x.detach() * x.sigmoid()

    op = _declared(name, reference)

    def backward(grads, x, *, needs):  # type: ignore[no-untyped-def]
        s = x.sigmoid()
        return grads[0] * (s + x * s * (1 - s))

    op.register_backward("cpu", backward)
    return op


@mutation("reference", "dtypes", "values", "fake", "opcheck")
def makes_float32(name: str) -> opsmith.Op:
    """A constant tensor of float32 promotes half types in the reference; the kernel keeps them."""

    def reference(x: Tensor) -> Tensor:
        return x * torch.ones(x.shape[-1], device=x.device)

    op = _declared(name, reference)
    op.register_kernel("cpu", lambda x: x.clone())
    return op
