"""More elements than 32 bits can count, the last of them right."""

from __future__ import annotations

import os

import pytest
import torch

from .test_pointwise import add, polynomial, scale_bias_relu

MORE = 2**31 + 4096


def memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def test_on_the_cpu() -> None:
    if memory() < 12 * 2**30:
        pytest.skip("less than 12 GiB of memory are free")
    x = torch.arange(251, dtype=torch.uint8).repeat(MORE // 251 + 1)[:MORE]
    result = add(x, torch.tensor(3, dtype=torch.uint8))
    for part in (slice(0, 4096), slice(2**31 - 2048, 2**31 + 2048), slice(MORE - 4096, MORE)):
        assert torch.equal(result[part], x[part] + 3)


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [1, 64, MORE // 4096])
def test_on_a_gpu(columns: int) -> None:
    x = torch.randn(MORE, device="cuda", dtype=torch.bfloat16).view(-1, columns).requires_grad_()
    bias = torch.randn(columns, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    result = scale_bias_relu(x, bias, 0.5)
    grad = torch.randn_like(result)
    grad_x, grad_bias = torch.autograd.grad(result, [x, bias], grad)
    rows = x.shape[0]
    expected_bias = torch.zeros(columns, device="cuda", dtype=torch.float64)
    for begin in range(0, rows, max(1, 2**28 // columns)):
        part = slice(begin, min(rows, begin + max(1, 2**28 // columns)))
        before = x.detach()[part].float() * 0.5 + bias.detach().float()
        assert torch.equal(result[part], torch.relu(before).bfloat16())
        inside = torch.where(before > 0, grad[part].float(), 0)
        assert torch.equal(grad_x[part], (inside * 0.5).bfloat16())
        expected_bias += inside.sum(0, dtype=torch.float64)
    scale = expected_bias.abs().max() + 1
    assert (grad_bias.double() - expected_bias).abs().max() <= scale * 2**-8


@pytest.mark.gpu
def test_four_sums_over_more_than_32_bits_of_elements() -> None:
    x = torch.randn(MORE, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    coefficients = [torch.randn((), device="cuda", requires_grad=True) for _ in range(4)]
    result = polynomial(x, *coefficients)
    found = torch.autograd.grad(result, [x, *coefficients], torch.ones_like(result))
    exact = [0.0] * 4
    for part in x.detach().split(2**28):
        wide = part.double()
        for power in range(4):
            exact[power] += (wide ** (3 - power)).sum().item()
    for mine, true, power in zip(found[1:], exact, (3, 2, 1, 0), strict=True):
        scale = max(abs(true), MORE**0.5 * (15 if power == 3 else 2))
        assert abs(mine.item() - true) <= 1e-3 * scale
