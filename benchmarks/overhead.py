"""The cost of a call on the CPU against aten's own unary op, on 64 elements. `make bench` runs it."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import native_kernels
from rich.console import Console
from rich.table import Table

import opsmith
from opsmith import Op, runtime
from opsmith.benchmark import Timing, time_together
from opsmith.runtime import native

PYTHON_BAR = 6.0
GENERATED = "generated"  # by opsmith.pointwise, called from C++


def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


def declare(name: str, tier: str) -> Op:
    with runtime.forced(tier):
        op = opsmith.op(name)(square)
    op.register_kernel("cpu", native_kernels.extension().square_forward)
    op.register_backward("cpu", native_kernels.extension().square_backward_kernel, saves=("x",))
    return op


def measure(rounds: int) -> list[dict[str, object]]:
    torch.set_num_threads(1)
    native, python = declare("overhead::native", "native"), declare("overhead::python", "python")
    with runtime.forced("native"):
        generated = opsmith.pointwise("overhead::generated")(square)
    functions = {"aten": torch.square, "native": native, "python": python, GENERATED: generated}
    x, leaf, grad = torch.randn(64), torch.randn(64, requires_grad=True), torch.randn(64)
    for op in (native, python, generated):
        op.prepare(leaf)

    def called(value: torch.Tensor) -> dict[str, Callable[[], object]]:
        return {name: lambda f=function: f(value) for name, function in functions.items()}  # type: ignore[misc]

    def forward_and_backward() -> dict[str, Callable[[], object]]:
        return {
            name: lambda f=function: torch.autograd.grad(f(leaf), leaf, grad)  # type: ignore[misc]
            for name, function in functions.items()
        }

    rows = rows_of("without grad", time_together(called(x), rounds=rounds), 1.8, 1.65)
    rows += rows_of("with grad", time_together(called(leaf), rounds=rounds), 1.7, 1.5)
    rows += rows_of("forward+backward", time_together(forward_and_backward(), rounds=rounds), 1.1, 1.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows += rows_of("under autocast", time_together(called(x), rounds=rounds), 2.0, 2.0)
    return rows


def rows_of(
    case: str, timings: dict[str, Timing], bar: float | None, generated_bar: float | None = None
) -> list[dict[str, object]]:
    aten = timings["aten"]
    limits = {"native": bar, "python": PYTHON_BAR if bar and case == "with grad" else None, GENERATED: generated_bar}
    rows = []
    for tier in (tier for tier in timings if tier != "aten"):
        versus = timings[tier].versus(aten)
        limit = limits[tier]
        rows.append({
            "case": case, "tier": tier, "aten_us": aten.median * 1e6, "us": timings[tier].median * 1e6,
            "ratio": versus.ratio, "low": versus.low, "high": versus.high, "bar": limit,
            "met": None if limit is None else versus.ratio <= limit,
        })  # fmt: skip
    return rows


def show(rows: list[dict[str, object]], title: str) -> None:
    table = Table(title=title)
    for column in ("case", "tier", "aten us", "us", "times aten (95 %)", "bar", ""):
        table.add_column(column, justify="left" if column in ("case", "tier") else "right")
    for row in rows:
        mark = {True: "[green]met", False: "[red]missed", None: ""}[row["met"]]  # type: ignore[index]
        table.add_row(
            str(row["case"]), str(row["tier"]), f"{row['aten_us']:.2f}", f"{row['us']:.2f}",
            f"{row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})", str(row["bar"] or ""), mark,
        )  # fmt: skip
    Console().print(table)


def write(path: Path, benchmark: str, rows: list[dict[str, object]], about: dict[str, str]) -> None:
    versions = {"torch": torch.__version__, "python": platform.python_version(), "opsmith": opsmith.__version__}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"benchmark": benchmark, "about": {**about, **versions}, "rows": rows}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    native.build()  # else a process on a new machine measures the Python fallback under the name of C++
    rows = measure(options.rounds)
    show(rows, "Call overhead, CPU, 64 elements, one thread")
    if options.json:
        write(options.json, "overhead", rows, {"machine": platform.machine()})


if __name__ == "__main__":
    main()
