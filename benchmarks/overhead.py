"""What a call costs on the CPU beside aten's own unary op, on 64 elements. `make bench` runs it; rows go to results/."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import native_kernels
from rich.console import Console
from rich.table import Table

import opsmith
from opsmith import Op, runtime
from opsmith.bench import time_together


def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


def declare(name: str, tier: str, autocast: str = "keep") -> Op:
    with runtime.forced(tier):
        op = opsmith.op(name, autocast=autocast)(square)
    op.register_kernel("cpu", native_kernels.library().square_forward)
    op.register_backward("cpu", native_kernels.library().square_backward_kernel, saves=("x",))
    return op


def measure(rounds: int) -> list[dict[str, object]]:
    torch.set_num_threads(1)
    native, python = declare("overhead::native", "native"), declare("overhead::python", "python")
    lower = declare("overhead::lower", "native", autocast="lower")
    x = torch.randn(64)
    leaf = torch.randn(64, requires_grad=True)
    half = torch.randn(64, dtype=torch.bfloat16)
    grad = torch.randn(64)
    for op in (native, python, lower):
        op.prepare(leaf)

    def both(function: object) -> object:
        return lambda: torch.autograd.grad(function(leaf), leaf, grad)  # type: ignore[operator]

    def under_autocast(function: object) -> object:
        def body() -> None:
            function(x)  # type: ignore[operator]

        return body

    cases = {
        "without grad": ({"aten": lambda: torch.square(x), "native": lambda: native(x), "python": lambda: python(x)}, 1.8),
        "with grad": (
            {"aten": lambda: torch.square(leaf), "native": lambda: native(leaf), "python": lambda: python(leaf)}, 1.7,
        ),
        "forward+backward": ({"aten": both(torch.square), "native": both(native), "python": both(python)}, 1.1),
    }  # fmt: skip
    rows = []
    for case, (callables, bar) in cases.items():
        rows += rows_of(case, time_together(callables, rounds=rounds), bar)  # type: ignore[arg-type]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        callables = {"aten": lambda: torch.square(x), "native": lambda: native(x), "python": lambda: python(x)}
        rows += rows_of("under autocast", time_together(callables, rounds=rounds), 2.0)
    return rows


def rows_of(case: str, timings: dict[str, object], bar: float) -> list[dict[str, object]]:
    aten = timings["aten"]
    rows = []
    for tier in ("native", "python"):
        versus = timings[tier].versus(aten)  # type: ignore[attr-defined]
        limit = bar if tier == "native" else 6.0 if case == "with grad" else None
        rows.append({
            "case": case, "tier": tier, "aten_us": aten.median * 1e6, "us": timings[tier].median * 1e6,  # type: ignore[attr-defined]
            "ratio": versus.ratio, "low": versus.low, "high": versus.high, "bar": limit,
            "met": None if limit is None else versus.ratio <= limit,
        })  # fmt: skip
    return rows


def show(rows: list[dict[str, object]]) -> None:
    table = Table(title="Call overhead, CPU, 64 elements, one thread")
    for column in ("case", "tier", "aten us", "us", "times aten (95 %)", "bar", ""):
        table.add_column(column, justify="left" if column in ("case", "tier") else "right")
    for row in rows:
        mark = {True: "[green]met", False: "[red]missed", None: ""}[row["met"]]  # type: ignore[index]
        table.add_row(
            str(row["case"]), str(row["tier"]), f"{row['aten_us']:.2f}", f"{row['us']:.2f}",
            f"{row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})", str(row["bar"] or ""), mark,
        )  # fmt: skip
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.rounds)
    show(rows)
    if options.json:
        about = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
        options.json.write_text(json.dumps({"benchmark": "overhead", "about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
