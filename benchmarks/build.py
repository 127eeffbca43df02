"""The time to rebuild an edited extension: one small source, with opsmith/kernel.h and with torch/extension.h."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import native_kernels
from overhead import write
from rich.console import Console
from rich.table import Table

import opsmith
from opsmith import toolchain

ARCH = "sm_90"
BAR_SECONDS = 15.0  # of a .cu file, on two cores

ON_TORCH = """
#include <torch/extension.h>
torch::Tensor square(torch::Tensor x) { return x * x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("square", &square); }
"""
SOURCES = {
    "opsmith/kernel.h": {".cu": native_kernels.CUDA_SOURCE, ".cpp": native_kernels.SOURCE},
    "torch/extension.h": {".cu": ON_TORCH, ".cpp": ON_TORCH},
}


def measure(headers: str = "opsmith/kernel.h", suffixes: tuple[str, ...] = (".cu", ".cpp")) -> list[dict[str, object]]:
    """A row for each kind of source: seconds from the changed file to the loaded library, with an empty cache."""
    rows: list[dict[str, object]] = []
    for suffix in suffixes:
        with tempfile.TemporaryDirectory() as directory:
            before = os.environ.get("OPSMITH_CACHE_DIR")
            os.environ["OPSMITH_CACHE_DIR"] = f"{directory}/cache"
            try:
                seconds = rebuilt(Path(directory) / f"square{suffix}", headers)
            finally:
                os.environ.pop("OPSMITH_CACHE_DIR") if before is None else os.environ.update(OPSMITH_CACHE_DIR=before)
        bar = BAR_SECONDS if suffix == ".cu" and headers == "opsmith/kernel.h" else None
        rows.append({
            "source": f"one {suffix} file", "headers": headers, "seconds": seconds, "bar": bar,
            "met": None if bar is None else seconds <= bar,
        })  # fmt: skip
    return rows


def rebuilt(source: Path, headers: str) -> float:
    """The faster of two builds after an edit; with torch/extension.h only the first build, which takes as long."""
    abi: Literal["stable", "torch"] = "stable" if headers == "opsmith/kernel.h" else "torch"
    taken = []
    for number in range(3 if abi == "stable" else 1):
        source.write_text(f"{SOURCES[headers][source.suffix]}\n// edit {number}\n")
        start = time.perf_counter()
        opsmith.extension("opsmith_bench_build", source, arch=ARCH, abi=abi)
        taken.append(time.perf_counter() - start)
    return min(taken[1:] or taken)


def show(rows: list[dict[str, object]]) -> None:
    table = Table(title=f"Seconds until an edited source is built and loaded, {len(os.sched_getaffinity(0))} cores")
    for column in ("source", "headers", "seconds", "bar", ""):
        table.add_column(column, justify="right" if column in ("seconds", "bar") else "left")
    for row in rows:
        mark = {True: "[green]met", False: "[red]missed", None: ""}[row["met"]]  # type: ignore[index]
        table.add_row(str(row["source"]), str(row["headers"]), f"{row['seconds']:.1f}", str(row["bar"] or ""), mark)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--torch", action="store_true", help="also with torch/extension.h, which takes minutes")
    options = parser.parse_args()
    rows = [row for headers in SOURCES if headers == "opsmith/kernel.h" or options.torch for row in measure(headers)]
    show(rows)
    if options.json:
        about = {"cores": str(len(os.sched_getaffinity(0))), "nvcc": toolchain.find_nvcc().version, "arch": ARCH}
        write(options.json, "build", rows, {**about, "c++": str(toolchain.find_cxx().version)})


if __name__ == "__main__":
    main()
