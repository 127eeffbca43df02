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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from suites import CHANNELS, SCALE, row_op

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
    """An op on 2^power elements; row ops and scale_bias_relu by columns, or by the channels of images."""

    op: str
    direction: str
    power: int
    columns: int | str | None = None

    def arguments(self, dtype: torch.dtype) -> tuple[Any, ...]:
        def filled(*shape: int) -> torch.Tensor:
            return torch.randn(shape, dtype=dtype, device="cuda")

        if self.op in ROW_OPS:
            columns = int(self.columns or 4096)
            return row_op(self.op, 2**self.power // columns, columns, filled)[1]
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


ROW_OPS = ("softmax", "rms_norm", "layer_norm")


def rows(*widths: int, sums: bool = False) -> list[Case]:
    """Of 2^27 elements in rows. `sums`: only where gradients are summed over rows."""
    kinds = [("layer_norm", "backward"), ("rms_norm", "backward")]
    if not sums:
        kinds = [("softmax", "forward"), ("rms_norm", "forward"), ("softmax", "backward"), kinds[0]]
    return [Case(op, direction, 27, width) for op, direction in kinds for width in widths]


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
    "row_bytes": Experiment(
        "ROW_BYTES", [64, 96, 128, 192], rows(1024, 4096, 16384, 50257, 131072), dtypes=(torch.bfloat16,)
    ),
    "row_most_bytes": Experiment("ROW_MOST_BYTES", [128, 192, 256], rows(50257, 131072), dtypes=(torch.bfloat16,)),
    "row_few_threads": Experiment(
        "ROW_FEW_THREADS", [0, 512, 1024, 2048],
        [replace(case, power=power) for power in (14, 17, 20, 22) for case in rows(1000, 4096)],
        dtypes=(torch.bfloat16,),
    ),
    "row_most_warps": Experiment("ROW_MOST_WARPS", [8, 16, 32], rows(16384, 131072), dtypes=(torch.bfloat16,)),
    "row_lane_packs": Experiment("ROW_LANE_PACKS", [1, 2, 4, 8], rows(1024), dtypes=(torch.bfloat16,)),
    "row_ahead": Experiment(
        "ROW_AHEAD", [False, True], rows(1024, 4096, 16384, 131072, sums=True), dtypes=(torch.bfloat16,)
    ),
    "row_registers": Experiment(
        "ROW_REGISTERS", [24, 32, 40, 56], [*rows(4096, 131072), *rows(1024, 4096, 16384, 131072, sums=True)],
        dtypes=(torch.bfloat16,),
    ),
}  # fmt: skip


def fresh(name: str) -> Op:
    declare = opsmith.rowwise if name in ROW_OPS else opsmith.pointwise
    with runtime.forced("python"):  # a namespace of its own: the same text is compiled once
        return declare(f"tune_{next(numbers)}::{name}")(getattr(ops, name).reference)


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
    parser.add_argument("--power", type=int, help="of the elements of every case, to compile everything first")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    measured_rows = []
    for name in options.names or EXPERIMENTS:
        experiment = EXPERIMENTS[name]
        key = "" if experiment.key is None else f"[{experiment.key!r}]"
        table = Table("", *map(str, experiment.values), title=f"{experiment.constant}{key}, us", title_justify="left")
        for dtype in experiment.dtypes:
            for case in experiment.cases:
                case = replace(case, power=options.power or case.power)
                taken = microseconds(experiment, case, dtype)
                torch.cuda.empty_cache()
                shown = [f"[bold]{each:.4g}[/bold]" if each == min(taken) else f"{each:.4g}" for each in taken]
                table.add_row(f"{case} {str(dtype)[6:]}", *shown)
                measured_rows.append({"experiment": name, "case": str(case), "dtype": str(dtype)[6:], "us": taken,
                             "values": [str(value) for value in experiment.values]})  # fmt: skip
                if options.json:
                    options.json.write_text(json.dumps({"benchmark": "tune", "rows": measured_rows}, indent=1) + "\n")
        console.print(table)


if __name__ == "__main__":
    main()
