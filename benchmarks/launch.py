"""The cost of a launch through opsmith.cuda_source against one by cuda.core, and the time from an edit to its result.

Both launch the same kernel with 4 pointers and 2 integers, one block of one warp. cuda.core gets prepared addresses,
numbers and a launch configuration. opsmith gets tensors, and checks them. For an edit, a changed .cu file is saved,
compiled by NVRTC and launched, and its result is read on the host.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from overhead import write
from rich.console import Console
from rich.table import Table

import opsmith
from opsmith.benchmark import time_together

LAUNCH_BAR = 2.5
EDIT_BAR = 0.5  # seconds
KERNEL = """\
extern "C" __global__ void idle(const float* a, const float* b, const float* c, float* y, long long n, int m) {
  if (n < 0) y[0] = a[0] + b[0] + c[0] + m;
}
"""
EDITED = """\
template <typename T>
__global__ void scale(const T* __restrict__ x, T* __restrict__ y, long long n) {{
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] * T({factor});
}}
"""


class _CurrentStream:
    """torch's current stream, in the form that cuda.core accepts."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, torch.cuda.current_stream().cuda_stream


def cuda_core_launch(tensors: list[torch.Tensor], numbers: tuple[int, int]) -> Callable[[], object]:
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    device = Device()
    device.set_current()
    cubin = opsmith.cuda_source(KERNEL).compile().path.read_bytes()
    kernel = ObjectCode.from_cubin(cubin).get_kernel("idle")
    stream = device.create_stream(_CurrentStream())
    configuration = LaunchConfig(grid=1, block=32)
    addresses = [tensor.data_ptr() for tensor in tensors]
    count, factor = ctypes.c_int64(numbers[0]), ctypes.c_int32(numbers[1])
    return lambda: launch(stream, configuration, kernel, *addresses, count, factor)


def launches(rounds: int) -> list[dict[str, object]]:
    tensors = [torch.zeros(1024, device="cuda") for _ in range(4)]
    text = opsmith.cuda_source(KERNEL)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "idle.cu")
        path.write_text(KERNEL)
        file = opsmith.cuda_source(path)
        kernel = text.idle
        callables: dict[str, Callable[[], object]] = {
            "cuda.core": cuda_core_launch(tensors, (1024, 3)),
            "cuda_source of a text": lambda: kernel[1, 32](*tensors, 1024, 3),
            "cuda_source of a file": lambda: file.idle[1, 32](*tensors, 1024, 3),
        }
        timings = time_together(callables, rounds=rounds, synchronize=torch.cuda.synchronize)
    base = timings.pop("cuda.core")
    rows: list[dict[str, object]] = []
    for name, timing in timings.items():
        versus = timing.versus(base)
        rows.append({
            "case": "launch, 4 tensors and 2 integers", "what": name, "cuda_core_us": base.median * 1e6,
            "us": timing.median * 1e6, "ratio": versus.ratio, "low": versus.low, "high": versus.high,
            "bar": LAUNCH_BAR, "met": versus.ratio <= LAUNCH_BAR,
        })  # fmt: skip
    return rows


def edits(rounds: int) -> list[dict[str, object]]:
    """Seconds from saving a changed file to its result on the host; each text is compiled for the first time."""
    factors = itertools.count(int(time.time()) % 100_000 * 1000)
    x = torch.ones(1024, device="cuda", dtype=torch.float64)
    y = torch.empty_like(x)
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scale.cu")
        path.write_text(EDITED.format(factor=next(factors)))
        source = opsmith.cuda_source(path)
        source["scale<double>"][4, 256](x, y, 1024)
        torch.cuda.synchronize()
        for factor in itertools.islice(factors, rounds):
            start = time.perf_counter()
            path.write_text(EDITED.format(factor=factor))
            source["scale<double>"][4, 256](x, y, 1024)
            found = y[0].item()
            taken.append(time.perf_counter() - start)
            assert found == factor
    median = statistics.median(taken)
    return [{
        "case": "edit to result", "what": "cuda_source of a file", "s": median, "slowest_s": max(taken),
        "bar": EDIT_BAR, "met": median <= EDIT_BAR,
    }]  # fmt: skip


def show(rows: list[dict[str, object]], title: str) -> None:
    table = Table(title=title)
    for column in ("case", "what", "cuda.core", "opsmith", "times cuda.core (95 %)", "bar", ""):
        table.add_column(column, justify="left" if column in ("case", "what") else "right")
    for row in rows:
        mark = "[green]met" if row["met"] else "[red]missed"
        if "us" in row:
            times = f"{row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})"
            cells = [f"{row['cuda_core_us']:.2f} us", f"{row['us']:.2f} us", times, str(row["bar"])]
        else:
            cells = ["", f"{row['s']:.3f} s", f"slowest {row['slowest_s']:.3f} s", f"{row['bar']} s"]
        table.add_row(str(row["case"]), str(row["what"]), *cells, mark)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--edits", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(message="No GPU here: there is nothing to launch on.\n")
    os.environ.setdefault("OPSMITH_QUIET", "1")
    with torch.cuda.stream(torch.cuda.Stream()):  # cuda.core has another handle for the default stream
        rows = launches(options.rounds) + edits(options.edits)
    show(rows, f"Launches from Python on the host of one {torch.cuda.get_device_name()}")
    if options.json:
        write(options.json, "launch", rows, {"gpu": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
