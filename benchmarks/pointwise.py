"""The shipped pointwise ops beside eager PyTorch and torch.compile: kernel time on a GPU, call time on a CPU.

On a GPU a call is captured as a CUDA graph and replayed, so that the time is the kernels' alone, on tensors far larger
than the L2 cache. The share is the least bytes the call can move over its time, relative to a kernel that copies,
measured in the same run. On a CPU the three are timed in turns, with a 95 % interval for the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from overhead import write
from rich.console import Console
from rich.table import Table

import opsmith
from opsmith.bench import time_together

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
COLUMNS = (64, 4096, 65536)


class Case:
    """An op on certain tensors; `saved` counts the full-size tensors that its backward must read besides gradients."""

    def __init__(
        self, name: str, args: tuple[Any, ...], saved: int, label: str = "", op: opsmith.Op | None = None
    ) -> None:
        self.name, self.label, self.args, self.saved = name, label or name, args, saved
        self.op = op or getattr(opsmith.ops, name)
        full = [arg for arg in args if isinstance(arg, torch.Tensor)]
        self.size = max(arg.numel() for arg in full)
        self.item = full[0].element_size()
        self.inputs = sum(arg.numel() == self.size for arg in full)

    def least_bytes(self, direction: str) -> int:
        """Each full-size tensor read once and written once."""
        moved = self.inputs + 1 if direction == "forward" else 1 + self.saved + self.inputs
        return moved * self.size * self.item


def cases(count: int, device: str, dtype: torch.dtype) -> list[Case]:
    def full() -> torch.Tensor:
        return torch.randn(count, device=device, dtype=dtype)

    def small(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=dtype)

    x, y = full(), full()
    found = [
        Case("square", (x,), 1),
        Case("add_two", (x,), 0),
        Case("elementwise_mult", (x, y), 2),
        Case("polynomial", (x, *(small() for _ in range(4))), 1),
        Case("swish", (x,), 1),
        Case("mish", (x,), 1),
        Case("gelu", (x,), 1),
        Case("swiglu", (x, y), 2),
        Case("geglu", (x, y), 2),
    ]
    for columns in COLUMNS:
        if count >= 64 * columns:
            args = (x.view(-1, columns), small(columns), 1.5)
            label = "scale_bias_relu" if columns == 4096 else f"scale_bias_relu, {columns} columns"
            found.append(Case("scale_bias_relu", args, 1, label))
    channels = 64
    if count % (channels * 1024) == 0:
        image = x.view(-1, channels, 32, 32)
        last = x.view(-1, 32, 32, channels).permute(0, 3, 1, 2)
        found.append(Case("scale_bias_relu", (image, small(channels, 1, 1), 1.5), 1, "scale_bias_relu, NCHW"))
        found.append(Case("scale_bias_relu", (last, small(channels, 1, 1), 1.5), 1, "scale_bias_relu, channels last"))
    return found


# --- one GPU --------------------------------------------------------------------------------------------------------


@functools.cache
def side() -> torch.cuda.Stream:
    """Where calls are captured. Forwards run here too, since a backward goes to the stream of its forward."""
    return torch.cuda.Stream()


CAPTURES = 5


def replayed(call: Callable[[], object], repeats: int = 12) -> float:
    """Seconds of a call's kernels: the median over captures of the median replay. Results lie elsewhere in each,
    for some places are up to 10 % slower, for any kernel, than others."""
    with torch.cuda.stream(side()):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    medians = []
    for capture in range(CAPTURES):
        moved = torch.empty((1 + 3 * capture) << 21, dtype=torch.uint8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side()):
            shifted = torch.empty((1 + 5 * capture) << 21, dtype=torch.uint8, device="cuda")
            kept = call()
        for _ in range(2):
            graph.replay()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
        events[0].record()
        for event in events[1:]:
            graph.replay()
            event.record()
        torch.cuda.synchronize()
        medians.append(statistics.median(one.elapsed_time(two) / 1e3 for one, two in itertools.pairwise(events)))
        del kept, moved, shifted, graph
    return statistics.median(medians)


def directions(function: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Callable[[], object]]:
    """What is timed: the forward without gradients, and the backward alone."""
    plain = [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]
    leaves = [arg.requires_grad_() if isinstance(arg, torch.Tensor) else arg for arg in plain]
    wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def forward() -> object:
        with torch.no_grad():
            return function(*plain)

    with torch.cuda.stream(side()) if plain[0].is_cuda else contextlib.nullcontext():
        result = function(*leaves)
        grad = torch.randn_like(result)

    def backward() -> object:
        return torch.autograd.grad(result, wanted, grad, retain_graph=True)

    return {"forward": forward, "backward": backward}


def copy_bandwidth(count: int) -> float:
    """Bytes a second of a kernel that reads and writes: the better of opsmith's and torch.compile's."""
    x = torch.randn(count, device="cuda")
    compiled = torch.compile(lambda value: value + 1, mode="max-autotune-no-cudagraphs")
    best = min(replayed(lambda: opsmith.ops.add_two(x)), replayed(lambda: compiled(x)))
    return 2 * x.nbytes / best


def on_gpu(count: int, baselines: bool, json: Path | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    copy = copy_bandwidth(count)
    about = {"gpu": torch.cuda.get_device_name(), "copy_terabytes_per_second": round(copy / 1e12, 3)}
    rows: list[dict[str, Any]] = []
    for label, dtype in DTYPES.items():
        for case in cases(count, "cuda", dtype):
            contenders: dict[str, Callable[..., Any]] = {"opsmith": case.op}
            if baselines:
                contenders["eager"] = case.op.reference
                contenders["compile"] = torch.compile(case.op.reference, mode="max-autotune-no-cudagraphs")
            seconds: dict[str, dict[str, float]] = {"forward": {}, "backward": {}}
            for name, function in contenders.items():
                for direction, call in directions(function, case.args).items():
                    seconds[direction][name] = replayed(call)
            for direction, taken in seconds.items():
                share = case.least_bytes(direction) / taken["opsmith"] / copy
                rows.append(_row(case, direction, label, "H200", taken, share))
                print(f"{case.label:34} {label:9} {direction:9} {share:6.1%}", flush=True)
            torch._dynamo.reset()
            if json is not None:  # as it goes: a lent machine may be taken back
                write(json, "pointwise", rows, about)
    return rows, about


def _row(case: Case, direction: str, dtype: str, device: str, taken: dict[str, float], share: float | None) -> Any:
    row: dict[str, Any] = {"op": case.label, "direction": direction, "dtype": dtype}
    row |= {"elements": case.size, "device": device}
    for name in ("opsmith", "compile", "eager"):
        row[f"{name}_us"] = round(taken[name] * 1e6, 1) if name in taken else None
    return row | {"share_of_copy": None if share is None else round(share, 3)}


# --- the CPU --------------------------------------------------------------------------------------------------------


def on_cpu(count: int, rounds: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    torch.set_num_threads(2)
    rows = []
    chosen = ("polynomial", "mish", "scale_bias_relu")
    for case in (each for each in cases(count, "cpu", torch.float32) if each.label in chosen):
        functions = {"opsmith": case.op, "compile": torch.compile(case.op.reference), "eager": case.op.reference}
        calls = {name: directions(function, case.args) for name, function in functions.items()}
        for direction in ("forward", "backward"):
            together = {name: own[direction] for name, own in calls.items()}
            timings = time_together(together, rounds=rounds, round_seconds=0.05)
            row = _row(case, direction, "float32", "cpu", {n: t.median for n, t in timings.items()}, None)
            for name in ("compile", "eager"):
                versus = timings[name].versus(timings["opsmith"])
                row[f"times_{name}"] = [round(versus.ratio, 2), round(versus.low, 2), round(versus.high, 2)]
            rows.append(row)
    return rows, {"cpu": platform.processor() or platform.machine(), "threads": 2}


def show(rows: list[dict[str, Any]], title: str) -> None:
    table = Table(title=title)
    for heading in ("op", "dtype", "direction", "opsmith us", "compile us", "eager us", "share of copy"):
        table.add_column(heading, justify="left" if heading in ("op", "dtype", "direction") else "right")
    for row in rows:
        times = [f"{row[f'{name}_us'] or 0:,.0f}" for name in ("opsmith", "compile", "eager")]
        share = f"{row['share_of_copy']:.0%}" if row["share_of_copy"] else ""
        table.add_row(row["op"], row["dtype"], row["direction"], *times, share)
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--elements", type=int, help="2^22 on a CPU, 2^27 on a GPU")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--alone", action="store_true", help="no eager, no torch.compile")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.device == "cuda":
        rows, where = on_gpu(options.elements or 2**27, not options.alone, options.json)
    else:
        rows, where = on_cpu(options.elements or 2**22, options.rounds)
    show(rows, f"Pointwise ops on {where.get('gpu', 'a CPU, 2 threads')}, {rows[0]['elements']:,} elements")
    if options.json:
        write(options.json, "pointwise", rows, where)


if __name__ == "__main__":
    main()
