"""convrnn on a GPU: kernel time of both directions, against a PyTorch loop replayed as a CUDA graph.

A graph has several calls, each on its own tensors, which exceed the L2 cache together, as in `opsmith bench`.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from overhead import write
from rich.console import Console
from rich.table import Table

from opsmith.benchmark import ceilings, gpu
from opsmith.ops import convrnn

SHAPES = ((2, 512), (64, 1024), (4096, 256))
UNITS, TAPS = 64, 3
BARS = {(2, 512): "40 us", (64, 1024): "80 us", (4096, 256): "80 % of copy"}
PAST_THE_CACHE = 200e6
"""Bytes; the L2 cache of an H200 has 60 MB."""


def replayed(calls: list[Callable[[], object]], rounds: int = 15) -> float:
    """Seconds per call."""
    sampler = gpu.GraphSampler(calls, gpu.Places(1))
    return statistics.median(sampler.sample() for _ in range(rounds))


def measure(batch: int, steps: int, dtype: torch.dtype, copy: float, loop: bool) -> list[dict[str, Any]]:
    size = batch * steps * UNITS * dtype.itemsize
    sets = max(2, min(256, round(PAST_THE_CACHE / (2 * size))))
    kernel = (torch.randn(1, 1, TAPS, device="cuda") / 3).to(dtype).requires_grad_()
    hidden = torch.randn(batch, UNITS, device="cuda", dtype=dtype).requires_grad_()
    inputs = [torch.randn(batch, steps, UNITS, device="cuda", dtype=dtype).requires_grad_() for _ in range(sets)]
    with torch.cuda.stream(gpu.stream()):
        outputs = [convrnn(x, kernel, hidden) for x in inputs]
        grads = [torch.randn_like(output) for output in outputs]

    def forward(function: Callable[..., Any], x: torch.Tensor) -> Callable[[], object]:
        def call() -> object:
            with torch.no_grad():
                return function(x, kernel, hidden)

        return call

    def backward(x: torch.Tensor, output: torch.Tensor, grad: torch.Tensor) -> Callable[[], object]:
        return lambda: torch.autograd.grad(output, (x, kernel, hidden), grad, retain_graph=True)

    taken = {
        "forward": replayed([forward(convrnn, x) for x in inputs]),
        "backward": replayed(list(itertools.starmap(backward, zip(inputs, outputs, grads, strict=True)))),
    }
    rows = []
    for direction, seconds in taken.items():
        moved = 2 * size if direction == "forward" else (4 if dtype.itemsize == 2 else 3) * size
        row = {"op": "convrnn", "direction": direction, "dtype": str(dtype).removeprefix("torch.")}
        row |= {"batch": batch, "steps": steps, "units": UNITS, "taps": TAPS, "device": "H200"}
        row |= {"opsmith_us": round(seconds * 1e6, 1), "ns_a_step": round(seconds / steps * 1e9, 1)}
        row |= {"share_of_copy": round(moved / seconds / copy, 3)}
        if loop and direction == "forward":
            row["loop_us"] = round(replayed([forward(convrnn.reference, inputs[0])], rounds=3) * 1e6, 1)
        rows.append(row)
    return rows


def memory(batch: int, steps: int) -> dict[str, Any]:
    """Peak memory of forward and backward beyond inputs, outputs and gradients."""
    x, kernel, hidden = (
        torch.randn(shape, device="cuda", requires_grad=True)
        for shape in ((batch, steps, UNITS), (1, 1, TAPS), (batch, UNITS))
    )
    grad = torch.randn_like(x)
    convrnn(x, kernel, hidden).backward(grad)  # some memory is allocated once per stream
    x.grad = kernel.grad = hidden.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    convrnn(x, kernel, hidden).backward(grad)
    needed = 2 * x.nbytes + hidden.nbytes + kernel.nbytes
    extra = torch.cuda.max_memory_allocated() - before - needed
    return {
        "op": "convrnn",
        "direction": "both",
        "dtype": "float32",
        "batch": batch,
        "steps": steps,
        "units": UNITS,
    } | {
        "bytes_beyond_results_and_gradients": extra,
        "of_a_tensor": round(extra / x.nbytes, 5),
    }


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"convrnn on {torch.cuda.get_device_name()}, H={UNITS}, K={TAPS}, tanh")
    for heading in ("dtype", "B", "T", "direction", "us", "ns per step", "share of copy", "PyTorch loop us", "bar"):
        table.add_column(heading, justify="right")
    for row in rows:
        if "opsmith_us" not in row:
            continue
        shape = row["batch"], row["steps"]
        bar = BARS[shape] if row["direction"] == "forward" and row["dtype"] == "float32" else ""
        times = f"{row['opsmith_us']:,.1f}", f"{row['ns_a_step']:.0f}", f"{row['share_of_copy']:.0%}"
        loop = f"{row['loop_us']:,.0f}" if "loop_us" in row else ""
        table.add_row(row["dtype"], *map(str, shape), row["direction"], *times, loop, bar)
    Console(width=120).print(table)
    for row in rows:
        if "of_a_tensor" in row:
            print(f"peak memory beyond inputs, outputs and gradients: {row['of_a_tensor']:.3%} of a tensor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--loop", action="store_true", help="also time the PyTorch loop, as a replayed graph")
    options = parser.parse_args()
    copy = ceilings.measure("cuda").copy
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for batch, steps in SHAPES:
            loop = options.loop and dtype is torch.float32 and batch < 4096
            rows += measure(batch, steps, dtype, copy, loop)
    rows.append(memory(1024, 256))
    show(rows)
    if options.json:
        about = {"gpu": torch.cuda.get_device_name(), "copy_terabytes_per_second": round(copy / 1e12, 3)}
        write(options.json, "convrnn", rows, about)


if __name__ == "__main__":
    main()
