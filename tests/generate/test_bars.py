"""Bars of generated kernels: how soon they are there, and that they pay. Speed on a GPU is in benchmarks/results."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import torch

from opsmith.benchmark import time_together
from opsmith.generate import devices
from opsmith.toolchain import find_nvrtc

from . import golden_ops

pytestmark = pytest.mark.timing
ROOT = Path(__file__).parents[2]
NAMES = ["mish", "polynomial", "scale_bias_relu"]

FIRST_CALL = """
import json, time
import torch, opsmith
from torch import Tensor
x, bias = torch.randn(8, 64, requires_grad=True), torch.randn(64, requires_grad=True)
torch.autograd.grad((x * x).sum(), x)   # torch's own first times are not ours
opsmith.pointwise
start = time.perf_counter()
@opsmith.pointwise("bars::first")
def first(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
    return torch.relu(x * scale + bias)
result = first(x, bias)
forward = time.perf_counter() - start
torch.autograd.grad(result.sum(), [x, bias])
seconds = time.perf_counter() - start
import sys
print(json.dumps({"forward": forward, "seconds": seconds, "dynamo": "torch._dynamo" in sys.modules}))
"""


def measured(script: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_the_first_call_of_a_process_is_quick() -> None:
    """Declaration, first forward and first backward with their kernels in the cache: under 30 ms beyond the imports."""
    measured(FIRST_CALL)  # fills the cache
    runs = [measured(FIRST_CALL) for _ in range(5)]
    assert statistics.median(run["seconds"] for run in runs) < 0.030, runs
    assert not runs[0]["dynamo"]


def texts(name: str, device: str) -> list[str]:
    """Forward and backward, never compiled before."""
    op, args = getattr(golden_ops, name), golden_ops.arguments(name, torch.float32)
    return [f"// {uuid.uuid4()}\n{op.source(device, *args, backward=backward)}" for backward in (False, True)]


@pytest.mark.parametrize("name", NAMES)
def test_cuda_compiles_in_a_second(name: str) -> None:
    """Forward and backward by NVRTC, which needs no GPU; the better of three, for the machine may be busy."""
    find_nvrtc()
    devices.compile_cuda(*_named(texts(name, "cuda")[0]), "sm_90")  # NVRTC's own import
    seconds = []
    for _ in range(3):
        fresh = [_named(text) for text in texts(name, "cuda")]
        start = time.perf_counter()
        for text, entry in fresh:
            devices.compile_cuda(text, entry, "sm_90")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1, seconds


def _named(text: str) -> tuple[str, str]:
    entry = next(line.split("(")[0] for line in text.splitlines() if "(__grid_constant__" in line)
    return text, entry.split()[-1]


@pytest.mark.parametrize("name", NAMES)
def test_cpp_compiles_in_five_seconds(name: str) -> None:
    seconds = []
    for _ in range(2):
        fresh = texts(name, "cpu")
        start = time.perf_counter()
        for text, direction in zip(fresh, ("forward", "backward"), strict=True):
            devices._cpu_function(text, f"opsmith_{name}_{direction}")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 5, seconds


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_polynomial_is_three_times_as_fast_as_eager(direction: str) -> None:
    op, count = golden_ops.polynomial, 2**22
    args = [torch.randn(count, requires_grad=True), *(torch.randn((), requires_grad=True) for _ in range(4))]
    results = {"opsmith": op(*args), "eager": op.reference(*args)}
    grad = torch.randn(count)

    def call(name: str) -> object:
        if direction == "backward":
            return torch.autograd.grad(results[name], args, grad, retain_graph=True)
        with torch.no_grad():
            return (op if name == "opsmith" else op.reference)(*args)

    timings = time_together({name: lambda n=name: call(n) for name in results}, rounds=9)
    assert timings["eager"].versus(timings["opsmith"]).high >= 3
