"""Every function of the table: values and gradients are torch's, at ordinary points, kinks, ties, infinities and
NaN."""

from __future__ import annotations

import math
import os

import pytest
import torch

from opsmith.generate.functions import names

from . import calls
from .calls import CALLS, Call

CHUNK = 8  # calls compiled together
CHUNKS = [CALLS[start : start + CHUNK] for start in range(0, len(CALLS), CHUNK)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

ONE = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.1, 0.9, 0.3, 2.0, -2.0, 3.0, -3.0, 6.0, 0.25, 0.75, 1.5, 2.5, 20.0, 21.0, -20.0,
    math.pi, 88.0, -88.0, 100.0, -100.0, 1e4, -1e4, 1e-3, -1e-3, 1e-40, 3e38, math.inf, -math.inf, math.nan, 1.25,
]  # fmt: skip
FEW = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 0.7, 50.0, 1e4, math.inf, -math.inf, math.nan]


def points(call: Call, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
    """Special values in every combination, then random ones."""
    generator = torch.Generator().manual_seed(len(call.inputs))
    random = [torch.randn(200, generator=generator, dtype=torch.float64) * 2 for _ in call.inputs]
    if len(call.inputs) == 1:
        special = [torch.tensor(ONE, dtype=torch.float64)]
    else:
        several = FEW if len(call.inputs) == 2 else [0.0, 1.0, -1.0, 0.3, 50.0, math.inf, math.nan]
        grid = torch.meshgrid(*[torch.tensor(several, dtype=torch.float64)] * len(call.inputs), indexing="ij")
        special = [axis.flatten() for axis in grid]
    both = [torch.cat([first, second]) for first, second in zip(special, random, strict=True)]
    return [each.to(dtype).to(device).requires_grad_() for each in both]


def evaluate(function, inputs, grad):
    result = function(*inputs)
    if not result.requires_grad:
        return [result.detach(), *[torch.zeros_like(each) for each in inputs]]
    found = torch.autograd.grad(result, inputs, grad.to(result.dtype), allow_unused=True)
    return [result.detach(), *[torch.zeros_like(i) if g is None else g for g, i in zip(found, inputs, strict=True)]]


def assert_like(
    mine: torch.Tensor,
    theirs: torch.Tensor,
    truth: torch.Tensor,
    what: str,
    inputs,
    cancels: bool,
    slope: int,
    there: torch.Tensor,
) -> None:
    """Equal where torch is not finite; elsewhere no further from the truth than twice torch's own error, here or on the
    device (`there`), and some ulp."""
    mine, theirs, truth = mine.double().cpu(), theirs.double().cpu(), truth.double().cpu()
    eps = torch.finfo(torch.float32).eps if inputs[0].dtype == torch.float32 else torch.finfo(torch.float64).eps
    tiny = 1e-37 if inputs[0].dtype == torch.float32 else 1e-300
    finite = theirs.isfinite() & truth.isfinite()
    scale = truth.abs()
    for each in inputs if cancels else ():
        scale = torch.maximum(scale, each.detach().double().cpu().abs().nan_to_num(posinf=0.0))
    # A slope is a difference of terms of order one times a gradient of order one (1 - tanh^2, sigmoid (1 - sigmoid)).
    own = torch.maximum((theirs - truth).abs(), (there.double().cpu() - truth).abs().nan_to_num(nan=0.0, posinf=0.0))
    allowed = 2 * own + 8 * eps * scale + (slope * eps if slope else tiny)
    good = torch.where(finite, (mine - truth).abs() <= allowed, (mine == theirs) | (mine.isnan() & theirs.isnan()))
    # A value that overflows in one order of products and not in another.
    right = (mine == truth) | (mine.isnan() & truth.isnan()) | ((mine - truth).abs() <= 8 * eps * truth.abs())
    good |= ~theirs.isfinite() & right
    good |= ~truth.isfinite() & theirs.isfinite() & ((mine - theirs).abs() <= 8 * eps * theirs.abs())
    if not good.all():
        index = int((~good).nonzero()[0])
        where = ", ".join(f"{i[index].item():.9g}" for i in inputs)
        pytest.fail(
            f"{what} at ({where}): {mine[index].item():.9g}, torch {theirs[index].item():.9g}, "
            f"true {truth[index].item():.9g}; {int((~good).sum())} points differ"
        )


def test_the_list_is_the_table() -> None:
    assert {call.name for call in CALLS} | {"float", "bool"} >= set(names()) - {"fill_", "copy_", "zero_"}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("chunk", range(len(CHUNKS)))
def test_values_and_gradients_are_torchs(chunk: int, dtype: torch.dtype, device: str) -> None:
    op = calls.make(CHUNKS[chunk], f"functions::chunk_{chunk}_{os.getpid()}_{str(dtype)[6:]}_{device}")
    lengths = []
    inputs = []
    for call in CHUNKS[chunk]:
        own = points(call, dtype, device)
        lengths.append(own[0].numel())
        inputs.append(own)
    count = max(lengths)
    # One shape for all, as the op is one kernel: the points again from the start.
    inputs = [
        [each.detach().repeat(-(-count // each.numel()))[:count].requires_grad_() for each in own] for own in inputs
    ]
    results = op(*[each for own in inputs for each in own])
    results = results if isinstance(results, tuple) else (results,)
    grad = torch.linspace(0.5, 1.5, count, dtype=dtype, device=device)
    flat = [each for own in inputs for each in own]
    targets = [result for result in results if result.requires_grad]
    found = iter(torch.autograd.grad(targets, flat, [grad.to(t.dtype) for t in targets], allow_unused=True))
    for call, own, result in zip(CHUNKS[chunk], inputs, results, strict=True):
        function = calls.function(call)
        # torch on the CPU: at NaN its kernels for the GPU and for the CPU differ.
        own, on_cpu = [each.detach().cpu().requires_grad_() for each in own], grad.cpu()
        theirs = evaluate(function, [each.detach() for each in own] if call.steps else own, on_cpu)
        moved = [each.detach().to(device).requires_grad_(not call.steps) for each in own]
        there = theirs if device == "cpu" else evaluate(function, moved, grad)
        precise = [each.detach().double().requires_grad_(not call.steps) for each in own]
        truth = evaluate(function, precise, on_cpu.double())
        assert result.dtype == theirs[0].dtype, call.text
        mine = [result.detach(), *[next(found) for _ in own]]
        for index, (one, two, three, four) in enumerate(zip(mine, theirs, truth, there, strict=True)):
            what = call.text if index == 0 else f"d {call.text} / d {call.inputs[index - 1]}"
            assert_like(
                torch.zeros_like(two) if one is None else one,
                two,
                three,
                what,
                own,
                call.cancels,
                call.slack * (index > 0),
                four,
            )
