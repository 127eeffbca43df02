"""Bars that are policies: a lean import, a quick first call, cheap calls. Each is measured in a new process."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from opsmith import runtime

pytestmark = pytest.mark.timing
ROOT = Path(__file__).parents[1]

IMPORT = """
import json, sys, time
start = time.perf_counter()
import torch
imported = time.perf_counter()
before = set(sys.modules)
x = torch.randn(64)
begun = time.perf_counter()
import opsmith
opsmith.ops.mish(x)
seconds = time.perf_counter() - begun
heavy = ("triton", "numba", "torch._dynamo", "sympy", "rich", "typer", "hypothesis", "cuda.core", "cuda.bindings")
loaded = [name for name in heavy if name in set(sys.modules) - before]
share = seconds / (imported - start)
print(json.dumps({"share": share, "loaded": loaded, "cuda": torch.cuda.is_initialized()}))
"""

FIRST_CALL = """
import json, sys, time
sys.path.insert(0, "tests")
import torch, opsmith, native_kernels
from opsmith import op
from torch import Tensor
x = torch.randn(64, requires_grad=True)
torch.autograd.grad((x * x).sum(), x)   # torch's own first times are not ours
start = time.perf_counter()
@op("bars::first")
def first(x: Tensor) -> Tensor:
    return x * x
if {native}:
    first.register_kernel("cpu", native_kernels.library().square_forward)
    first.register_backward("cpu", native_kernels.library().square_backward_kernel, saves=("x",))
first(x)
forward = time.perf_counter() - start
torch.autograd.grad(first(x).sum(), x)
seconds = time.perf_counter() - start
print(json.dumps({{"forward": forward, "seconds": seconds, "dynamo": "torch._dynamo" in sys.modules}}))
"""


def measured(script: str, **environment: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_import_and_first_use_of_a_shipped_op_take_under_a_tenth_of_torchs_import(tmp_path: Path) -> None:
    """With warm caches: compiled kernels, and bytecode as in an installed package."""
    caches = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    first = measured(IMPORT, **caches)  # fills the caches
    assert first["loaded"] == [] and first["cuda"] is False
    assert statistics.median(float(measured(IMPORT, **caches)["share"]) for _ in range(10)) < 0.10  # type: ignore[arg-type]


@pytest.mark.parametrize("native", [False, True])
def test_first_call_is_quick(native: bool) -> None:
    """Declaration, first forward (with its checks) and first backward, warm cache: under 30 ms beyond the imports."""
    measured(FIRST_CALL.format(native=native))  # warms the cache
    runs = [measured(FIRST_CALL.format(native=native)) for _ in range(3)]
    assert statistics.median(float(run["seconds"]) for run in runs) < 0.030  # type: ignore[arg-type]
    assert runs[0]["dynamo"] is False


def test_call_overhead() -> None:
    """The bars of benchmarks/overhead.py, with half as much again for a machine that is busy running tests."""
    if runtime.tier() != "native":
        pytest.skip(f"the C++ runtime is not built: {runtime.reason()}; run `make setup`")
    script = (
        "import sys, json; sys.path.insert(0, 'benchmarks'); import overhead; print(json.dumps(overhead.measure(12)))"
    )
    rows: list[dict[str, float]] = measured(script)  # type: ignore[assignment]
    for row in rows:
        if row["bar"] is not None:
            assert row["low"] <= 1.5 * row["bar"], row
