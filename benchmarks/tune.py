"""The constants of generate/tuning.py on this GPU: each with neighbouring values, on the ops that it affects.

A line is a workload, a column a value of the constant: microseconds of kernel time. Compiled code depends on the
constants, so every cell has its own op. Python launches it, since the C++ runtime reads the constants only once.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from cells import CHANNELS, SCALE
from rich.console import Console
from rich.table import Table

import opsmith
from opsmith import Op, Sample, ops, runtime
from opsmith.benchmark.contenders import OPSMITH, contender
from opsmith.benchmark.run import workloads
from opsmith.benchmark.timing import measured
from opsmith.benchmark.workload import Stage
from opsmith.generate import devices, tuning

console = Console(highlight=False, width=150)
numbers = itertools.count()

SQUARE = "square"  # as many rows as columns
EVERY = 1 << 40


@dataclass(frozen=True)
class Case:
    """An op on 2^power elements; scale_bias_relu by columns, or by the channels of images."""

    op: str
    direction: str
    power: int
    columns: int | str | None = None

    def arguments(self, dtype: torch.dtype) -> tuple[Any, ...]:
        def filled(*shape: int) -> torch.Tensor:
            return torch.randn(shape, dtype=dtype, device="cuda")

        x = filled(2**self.power)
        if self.op == "polynomial":
            return x, *(filled() for _ in range(4))
        if self.op in ("elementwise_mult", "swiglu"):
            return x, filled(2**self.power)
        if self.op != "scale_bias_relu":
            return (x,)
        if self.columns in ("NCHW", "channels last"):
            images = x.view(-1, CHANNELS, 32, 32)
            last = x.view(-1, 32, 32, CHANNELS).permute(0, 3, 1, 2)
            return images if self.columns == "NCHW" else last, filled(CHANNELS, 1, 1), SCALE
        columns = 2 ** min(12, (self.power + 1) // 2) if self.columns == SQUARE else int(self.columns or 4096)
        return x.view(-1, columns), filled(columns), SCALE

    def __str__(self) -> str:
        return f"{self.op} {self.direction} 2^{self.power}{f', {self.columns}' if self.columns else ''}"


@dataclass(frozen=True)
class Experiment:
    """Values of one constant; `key`: if it is an entry of a dictionary."""

    constant: str
    values: Sequence[Any]
    cases: Sequence[Case]
    key: Any = None
    dtypes: Sequence[torch.dtype] = field(default=(torch.bfloat16, torch.float32))

    @contextlib.contextmanager
    def set(self, value: Any) -> Iterator[None]:
        place, name = (vars(tuning), self.constant) if self.key is None else (getattr(tuning, self.constant), self.key)
        before, place[name] = place[name], value
        devices._cuda_target.cache_clear()  # it caches the constants of the planner
        try:
            yield
        finally:
            place[name] = before
            devices._cuda_target.cache_clear()


def streams(*powers: int) -> list[Case]:
    heads = [("add_two", "forward"), ("mish", "forward"), ("polynomial", "forward")]
    heads += [("elementwise_mult", "backward"), ("mish", "backward")]
    return [Case(op, direction, power) for op, direction in heads for power in powers]


def sums(*powers: int) -> list[Case]:
    squares = [Case("scale_bias_relu", "backward", power, SQUARE) for power in powers]
    return [Case("polynomial", "backward", power) for power in powers] + squares


LARGE = [
    Case("polynomial", "backward", 27),
    Case("polynomial", "backward", 28),
    *(Case("scale_bias_relu", "backward", 27, each) for each in (64, 4096, 65536, "NCHW", "channels last")),
]
EXPERIMENTS = {
    "small": Experiment("SMALL", [(EVERY, 0, 0), (0, EVERY, 0), (0, 0, EVERY), (0, 0, 0)], streams(10, 14, 18, 20, 22)),
    "expensive": Experiment("EXPENSIVE", [0, 100, EVERY], streams(10, 14, 18)),
    "packs_in_flight": Experiment("PACKS_IN_FLIGHT", [1, 2, 4], sums(10, 14, 18)),
    "blocks": Experiment("FEW_BLOCKS", [0, 264, 1056], [*sums(18, 20, 22), LARGE[0], LARGE[3]]),
    "segment": Experiment("THREADS", [128, 256], [*sums(10, 14, 18, 22), *LARGE], key="segment"),
    "column": Experiment("THREADS", [256, 512], [*sums(10, 14, 18, 22)[4:], *LARGE[2:]], key="column"),
    "narrowest": Experiment("NARROWEST", [1, 2, 4, 32], sums(10, 14, 18, 22)[4:]),
    "unroll": Experiment(
        "UNROLL", [1, 2, 4], [Case(op, way, power) for op in ("elementwise_mult", "swiglu", "mish")
                              for way in ("forward", "backward") for power in (22, 25, 27)],
        key=8, dtypes=(torch.bfloat16,),
    ),
    "in_flight": Experiment("BYTES_IN_FLIGHT", [32, 64, 128], [*streams(22, 25, 27), Case("swiglu", "backward", 22)]),
    "resident": Experiment("RESIDENT", [768, 1024, 1536], LARGE),
}  # fmt: skip


def fresh(name: str) -> Op:
    with runtime.forced("python"):
        return opsmith.pointwise(f"tune::{name}_{next(numbers)}")(getattr(ops, name).reference)


def microseconds(experiment: Experiment, case: Case, dtype: torch.dtype) -> list[float]:
    """The time with each value, measured in turns on the same memory."""
    (workload,) = workloads(fresh(case.op), "cuda", dtype, [Sample(case.arguments(dtype), name=str(case))])
    stage, samplers = Stage(workload, case.direction), {}
    for value in experiment.values:
        with experiment.set(value):
            samplers[str(value)] = stage.sampler(contender(fresh(case.op), OPSMITH, "cuda"))
    return [round(timing.median * 1e6, 3) for timing in measured(samplers).values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(EXPERIMENTS)}; none: all")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.names or EXPERIMENTS:
        experiment = EXPERIMENTS[name]
        key = "" if experiment.key is None else f"[{experiment.key!r}]"
        table = Table("", *map(str, experiment.values), title=f"{experiment.constant}{key}, us", title_justify="left")
        for dtype in experiment.dtypes:
            for case in experiment.cases:
                taken = microseconds(experiment, case, dtype)
                torch.cuda.empty_cache()
                shown = [f"[bold]{each:.4g}[/bold]" if each == min(taken) else f"{each:.4g}" for each in taken]
                table.add_row(f"{case} {str(dtype)[6:]}", *shown)
                rows.append({"experiment": name, "case": str(case), "dtype": str(dtype)[6:], "us": taken,
                             "values": [str(value) for value in experiment.values]})  # fmt: skip
                if options.json:
                    options.json.write_text(json.dumps({"benchmark": "tune", "rows": rows}, indent=1) + "\n")
        console.print(table)


if __name__ == "__main__":
    main()
