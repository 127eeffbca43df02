"""The cells that cells.py measures: (sample name, op, arguments) of each suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import opsmith
from opsmith import Op, ops

POWERS = {"cuda": (10, 14, 18, 22, 25, 28), "cpu": (10, 14, 18, 22, 24)}
CHANNELS, SCALE, COLUMNS = 64, 1.5, (64, 4096, 65536)
Filled = Callable[..., torch.Tensor]


def contiguous(power: int, filled: Filled) -> Iterator[tuple[Op, tuple[Any, ...]]]:
    x, y = filled(2**power), filled(2**power)
    yield ops.mish, (x,)
    yield ops.elementwise_mult, (x, y)
    yield ops.polynomial, (x, *(filled() for _ in range(4)))
    yield ops.add_two, (x,)


def channels_last(power: int, filled: Filled) -> Iterator[tuple[Op, tuple[Any, ...]]]:
    side = 4 if power < 14 else 16
    images = filled(2**power // (CHANNELS * side * side), side, side, CHANNELS).permute(0, 3, 1, 2)
    yield ops.mish, (images,)


def broadcast_bias(power: int, filled: Filled) -> Iterator[tuple[Op, tuple[Any, ...]]]:
    columns = 2 ** min(12, (power + 1) // 2)
    yield ops.scale_bias_relu, (filled(2**power // columns, columns), filled(columns), SCALE)


def sliced(power: int, filled: Filled) -> Iterator[tuple[Op, tuple[Any, ...]]]:
    columns = 2 ** min(12, (power + 1) // 2)
    yield ops.mish, (filled(2**power // columns, 2 * columns)[:, :columns],)


LAYOUTS = {
    "contiguous": contiguous,
    "channels last": channels_last,
    "broadcast bias": broadcast_bias,
    "sliced": sliced,
}


def cells(device: str, filled: Filled, powers: list[int] | None) -> Iterator[tuple[str, Op, tuple[Any, ...]]]:
    for layout, made in LAYOUTS.items():
        for power in powers or POWERS[device]:
            for op, args in made(power, filled):
                yield f"{layout}, 2^{power}", op, args


def large(device: str, filled: Filled, powers: list[int] | None) -> Iterator[tuple[str, Op, tuple[Any, ...]]]:
    """Every op where memory is the limit; sums over few and many columns, and over the channels of images."""
    for power in powers or [27 if device == "cuda" else 22]:
        name, x, y = f"2^{power}", filled(2**power), filled(2**power)
        for op in (ops.square, ops.add_two, ops.swish, ops.mish, ops.gelu):
            yield name, op, (x,)
        for op in (ops.elementwise_mult, ops.swiglu, ops.geglu):
            yield name, op, (x, y)
        yield name, ops.polynomial, (x, *(filled() for _ in range(4)))
        for columns in COLUMNS:
            yield f"{name}, {columns} columns", ops.scale_bias_relu, (x.view(-1, columns), filled(columns), SCALE)
        images, last = x.view(-1, CHANNELS, 32, 32), x.view(-1, 32, 32, CHANNELS).permute(0, 3, 1, 2)
        for layout, given in (("NCHW", images), ("channels last", last)):
            yield f"{name}, {layout}", ops.scale_bias_relu, (given, filled(CHANNELS, 1, 1), SCALE)


# --- rows -------------------------------------------------------------------------------------------------------------

WIDTHS = (64, 1000, 4096, 50257, 131072)
ROW_POWERS = {"cuda": (14, 20, 27), "cpu": (20, 24)}
NORMED = ("rms_norm", "layer_norm", "softmax")


@opsmith.op("benchmarks::cross_entropy_mean")
def cross_entropy_mean(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """What a training step computes: the mean is counted too."""
    return torch.nn.functional.cross_entropy(logits, target)


def _forward(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ops.cross_entropy(logits, target).mean()


def _backward(
    grads: tuple[torch.Tensor, ...], logits: torch.Tensor, target: torch.Tensor, *, needs: tuple[bool, ...]
) -> tuple[torch.Tensor | None, ...]:
    grad = (grads[0] / target.numel()).expand(target.shape)
    backward = torch.ops.opsmith.cross_entropy_backward
    return backward(grad, logits, target, 0.0, 0.0, -100, None, [True, False])[0], None


for _device in ("cpu", "cuda"):
    cross_entropy_mean.register_kernel(_device, _forward)
    cross_entropy_mean.register_backward(_device, _backward)


@cross_entropy_mean.register_cost
def cost(logits: torch.Tensor, target: torch.Tensor) -> opsmith.Cost:
    return opsmith.Cost(bytes=logits.nbytes + target.nbytes, flops=5 * logits.numel())


def row_op(name: str, rows: int, width: int, filled: Filled) -> tuple[Op, tuple[Any, ...]]:
    """A row op on tensors [rows, width]."""
    x = filled(rows, width)
    if name == "cross_entropy":
        return cross_entropy_mean, (x, torch.randint(0, width, (rows,), device=x.device))
    others = {
        "rms_norm": lambda: (filled(width),),
        "layer_norm": lambda: (filled(width), filled(width)),
        "add_rms_norm": lambda: (filled(rows, width), filled(width)),
    }.get(name, tuple)
    return getattr(ops, name), (x, *others())


def rows(device: str, filled: Filled, powers: list[int] | None) -> Iterator[tuple[str, Op, tuple[Any, ...]]]:
    """Narrow and wide rows, few and many; small sizes only in one dtype, and only where ten rows fit."""
    for power in powers or ROW_POWERS[device]:
        for width in WIDTHS:
            count = 2**power // width
            small = device == "cuda" and power < ROW_POWERS["cuda"][-1]
            if count < 7 or (small and filled().dtype is not torch.bfloat16):
                continue
            for name in (*NORMED, "add_rms_norm", "cross_entropy"):
                yield f"{count} x {width}", *row_op(name, count, width, filled)


def large_rows(device: str, filled: Filled, powers: list[int] | None) -> Iterator[tuple[str, Op, tuple[Any, ...]]]:
    """Every row op where memory is the limit."""
    for power in powers or [27 if device == "cuda" else 22]:
        for width in (1024, 4096, 16384, 131072):
            for name in (*NORMED, *(["add_rms_norm"] if width <= 16384 else [])):
                yield f"{2**power // width} x {width}", *row_op(name, 2**power // width, width, filled)
        for width in (32000, 128256):
            count = 2**power // 2**15
            yield f"{count} x {width}", *row_op("cross_entropy", count, width, filled)
        count = 2**power // 2**13
        yield f"{count} x 8192", *row_op("quantize_rows", count, 8192, filled)
        images, weights = filled(2**power // 2**22, 32, 8, 128, 128), filled(2, 32, 8, 1, 1)
        yield f"2^{power}, 32 groups", ops.group_norm_silu, (images, *weights.unbind())


SUITES = {"cells": cells, "large": large, "rows": rows, "large-rows": large_rows}
