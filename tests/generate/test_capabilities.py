"""Generated C++ is right on every kind of processor: kernels for older ones run here too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = '''
import torch
from torch import Tensor
import opsmith

@opsmith.pointwise("capable::gated")
def gated(x: Tensor, bias: Tensor, factor: float = 2.0, negate: bool = False) -> Tensor:
    y = torch.relu(x * factor + bias)
    return -y if negate else y

@opsmith.pointwise("capable::clipped")
def clipped(x: Tensor, low: Tensor) -> Tensor:
    return torch.where(x > low, torch.minimum(x, low + 1), low * 0.5)

@opsmith.pointwise("capable::smooth")
def smooth(x: Tensor, scale: Tensor) -> Tensor:
    return torch.sigmoid(x * scale) * torch.tanh(x) + torch.exp(-x.abs())

def check(op, dtype, x, other):
    """Values and gradients, against the reference in float64."""
    found = [x.clone().requires_grad_(), other.clone().requires_grad_()]
    exact = [tensor.detach().double().requires_grad_() for tensor in found]
    result, right = op(*found), op.inline(*exact)
    grad = torch.randn(result.shape).to(dtype)
    results = [result, *torch.autograd.grad(result, found, grad)]
    expected = [right, *torch.autograd.grad(right, exact, grad.double())]
    for one, another in zip(results, expected):
        bound = 64 * torch.finfo(dtype).eps * (1 + another.abs().max())
        off = (one.double() - another).abs().max()
        assert off <= bound, (op.name, dtype, tuple(x.shape), tuple(other.shape), x.stride(), off.item())

torch.manual_seed(0)
print(torch.backends.cpu.get_cpu_capability())
dtypes = {gated: (torch.float32, torch.float64, torch.bfloat16), clipped: (torch.float32,), smooth: (torch.bfloat16,)}
for op, dtype in ((op, dtype) for op in dtypes for dtype in dtypes[op]):
    for shape, other in (((37,), (37,)), ((5, 8), (8,)), ((67, 19), (19,)), ((6, 33), (6, 1)), ((3, 5, 7), (1, 5, 1))):
        x, given = torch.randn(shape).to(dtype), torch.randn(other).to(dtype)
        check(op, dtype, x, given)
        if len(shape) == 2:
            check(op, dtype, x.t().contiguous().t(), given)
'''


@pytest.mark.parametrize("capability", ["avx2", "default"])
def test_kernels_for_older_processors_are_right(capability: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "ATEN_CPU_CAPABILITY": capability},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == capability.upper()
