"""The cost of a call on the host of a GPU against aten's own op: run by `make gpu`, prints a table, writes JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import native_kernels
from overhead import GENERATED, rows_of, show, square, write

import opsmith
from opsmith import runtime
from opsmith.benchmark import time_together
from opsmith.runtime import native

EXTENSION_BAR = 1.2  # a call of an extension's kernel, against aten's
BOTH = "forward+backward"
GENERATED_BARS = {"without grad": 1.15, "with grad": 1.4, BOTH: 1.0}


def measure(rounds: int) -> list[dict[str, object]]:
    kernels = native_kernels.cuda_library()
    ops = {}
    for tier in ("native", "python"):
        with runtime.forced(tier):
            ops[tier] = opsmith.op(f"overhead_gpu::{tier}")(square)
        ops[tier].register_kernel("cuda", kernels.square_forward)
    with runtime.forced("native"):
        ops[GENERATED] = opsmith.pointwise("overhead_gpu::generated")(square)
    x, grad = (torch.randn(64, device="cuda") for _ in range(2))
    leaf = torch.randn(64, device="cuda", requires_grad=True)
    for op in ops.values():
        op.prepare(leaf)
    rows = []
    for case, value in (("without grad", x), ("with grad", leaf)):
        callables = {"aten": lambda v=value: torch.square(v)} | {
            tier: lambda v=value, op=op: op(v) for tier, op in ops.items()
        }
        timings = time_together(callables, rounds=rounds, synchronize=torch.cuda.synchronize)
        rows += rows_of(case, timings, EXTENSION_BAR, GENERATED_BARS[case])
    steps = {
        name: lambda f=function: torch.autograd.grad(f(leaf), leaf, grad)
        for name, function in {"aten": torch.square, GENERATED: ops[GENERATED]}.items()
    }
    timings = time_together(steps, rounds=rounds, synchronize=torch.cuda.synchronize)
    return rows + rows_of(BOTH, timings, None, GENERATED_BARS[BOTH])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    native.build()  # else a process on a new machine measures the Python fallback under the name of C++
    rows = measure(options.rounds)
    show(rows, f"Call overhead on the host of one {torch.cuda.get_device_name()}, 64 elements")
    if options.json:
        write(options.json, "overhead_gpu", rows, {"gpu": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
