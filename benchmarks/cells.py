"""Shipped ops against eager PyTorch and torch.compile, cell by cell: op x direction x dtype x size x layout.

The rows are those of `opsmith bench`. A cell is lost if opsmith is slower by more than 3 % and 0.2 us, with 95 %
confidence. Lost cells are listed, and the exit status is 1. On a GPU torch.compile uses max-autotune; on a CPU it has
nothing to tune. suites.py lists the cells.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from suites import SUITES

import opsmith
from opsmith import Sample
from opsmith.benchmark import Results, ceilings
from opsmith.benchmark.cpu import pinned

AGAINST = {"cuda": ("eager", "compile-max"), "cpu": ("eager", "compile")}
HELD_AGAINST = {"cuda": ("eager", "compile-max"), "cpu": ("compile",)}
"""The contenders that must not win. On a CPU, eager is reported, and sometimes faster."""
LEAST_RATIO, LEAST_US = 0.03, 0.2


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
    failed: list[str] = []
    for dtype in (getattr(torch, name) for name in options.dtypes):

        def filled(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.randn(shape, dtype=dtype, device=device)

        for name, op, args in SUITES[options.suite](device, filled, options.powers):
            if options.ops and op.name.partition("::")[2] not in options.ops:
                continue
            against = AGAINST[device] if options.against is None else options.against
            samples = [Sample(args, name=name)]
            try:
                found = opsmith.bench(
                    op, device=device, dtype=dtype, samples=samples, against=against, threads=2, ceilings=limits
                )
            except Exception as error:  # the other cells are measured all the same
                failed.append(f"{op.name} {name} {str(dtype)[6:]}: {type(error).__name__}: {error}")
                console.print(failed[-1], style="red", markup=False)
                continue
            gc.collect()  # graphs that are in cycles hold their memory
            _print_rows(console, found.rows)
            everything.rows += found.rows
            everything.environment = found.environment
            everything.warnings += [text for text in found.warnings if text not in everything.warnings]
            if options.json:  # after each cell: the run may be interrupted
                everything.save(options.json)
    slower = lost(everything.rows, device)
    count = len({_cell(row) for row in everything.rows})
    console.print(f"{count} cells, {len({_cell(row) for row in slower})} of them lost, {len(failed)} failed")
    for row in slower:
        console.print(f"  {' '.join(map(str, _cell(row)))}: {row['contender']} {row['us']:.4g} us, "
                      f"{1 / row['speedup']:.2f} times as fast", style="red")  # fmt: skip
    sys.exit(1 if slower or failed else 0)


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
