"""Pointwise ops against eager PyTorch and torch.compile in every cell of {forward, backward} x dtype x size x layout.

The rows are those of `opsmith bench`. A cell is lost if opsmith is slower by more than 3 % and 0.2 us, with 95 %
confidence. Lost cells are listed, and the exit status is 1. On a GPU torch.compile uses max-autotune; on a CPU it has
nothing to tune. The suite "large" runs each op where memory is the limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import opsmith
from opsmith import Op, Sample, ops
from opsmith.benchmark import Results, ceilings
from opsmith.benchmark.cpu import pinned

POWERS = {"cuda": (10, 14, 18, 22, 25, 28), "cpu": (10, 14, 18, 22, 24)}
AGAINST = {"cuda": ("eager", "compile-max"), "cpu": ("eager", "compile")}
HELD_AGAINST = {"cuda": ("eager", "compile-max"), "cpu": ("compile",)}
"""The contenders that must not win. On a CPU, eager is reported, and sometimes faster."""
LEAST_RATIO, LEAST_US = 0.03, 0.2
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


SUITES = {"cells": cells, "large": large}


def lost(rows: list[dict[str, Any]], device: str) -> list[dict[str, Any]]:
    """The rows of contenders that are faster, beyond noise and beyond the bar."""
    own = {_cell(row): row["us"] for row in rows if row["contender"] == "opsmith"}
    return [
        row for row in rows
        if row["contender"] in HELD_AGAINST[device] and row["speedup_high"] < 1 - LEAST_RATIO
        and own[_cell(row)] - row["us"] > LEAST_US
    ]  # fmt: skip


def _cell(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("op", "sample", "dtype", "direction"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=list(SUITES), default="cells")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--against", nargs="*", help="baselines; none: those of the device")
    parser.add_argument("--powers", nargs="*", type=int, help="sizes, as powers of two")
    parser.add_argument("--ops", nargs="*", help="names of ops; none: all")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device, console = options.device, Console(highlight=False, width=140)
    with pinned(2 if device == "cpu" else None):
        limits = ceilings.measure(device)
    everything = Results()
    for dtype in (getattr(torch, name) for name in options.dtypes):

        def filled(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.randn(shape, dtype=dtype, device=device)

        for name, op, args in SUITES[options.suite](device, filled, options.powers):
            if options.ops and op.name.partition("::")[2] not in options.ops:
                continue
            found = opsmith.bench(
                op, device=device, dtype=dtype, samples=[Sample(args, name=name)],
                against=AGAINST[device] if options.against is None else options.against, threads=2, ceilings=limits,
            )  # fmt: skip
            _print_rows(console, found.rows)
            everything.rows += found.rows
            everything.environment = found.environment
            everything.warnings += [text for text in found.warnings if text not in everything.warnings]
            if options.json:  # after each cell: the run may be interrupted
                everything.save(options.json)
    slower = lost(everything.rows, device)
    count = len({_cell(row) for row in everything.rows})
    console.print(f"{count} cells, {len({_cell(row) for row in slower})} of them lost")
    for row in slower:
        console.print(f"  {' '.join(map(str, _cell(row)))}: {row['contender']} {row['us']:.4g} us, "
                      f"{1 / row['speedup']:.2f} times as fast", style="red")  # fmt: skip
    sys.exit(1 if slower else 0)


def _print_rows(console: Console, rows: list[dict[str, Any]]) -> None:
    for direction in ("forward", "backward"):
        times = [row for row in rows if row["direction"] == direction]
        if times:
            listed = ", ".join(f"{row['contender']} {row['us']:.4g}" for row in times)
            share = f", {times[0]['share']:.0%} of the limit" if "share" in times[0] else ""
            where = f"{times[0]['op']:26} {times[0]['dtype']:9} {times[0]['sample']:22} {direction:9}"
            console.print(f"{where} {listed} us{share}", soft_wrap=True)


if __name__ == "__main__":
    main()
