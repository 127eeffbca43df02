"""The time of the first call in a new process with empty caches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..operator import child_process
from ..operator.op import Op

if TYPE_CHECKING:
    from .results import Row

SECONDS = 600.0
_PROGRAM = """
import importlib.util, json, sys, time
import torch
given = json.loads(sys.argv[1])
import opsmith
from opsmith.operator.child_process import until_parent_call
sys.path[:] = given["path"]  # only now: a file beside the op's may have the name of a module that torch imports
with until_parent_call():
    if given["file"]:
        spec = importlib.util.spec_from_file_location("opsmith_cold", given["file"])
        sys.modules["opsmith_cold"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        importlib.import_module(given["module"])
from opsmith.benchmark.contenders import contender
from opsmith.benchmark.run import workloads
from opsmith.benchmark.shapes import parsed, resized
from opsmith.benchmark.workload import call_for
if given["device"] == "cpu":
    torch.set_num_threads(given["threads"])
op, dtype = opsmith.get(given["op"]), getattr(torch, given["dtype"])
samples = [resized(op, parsed(given["sample"]), given["device"], dtype)] if given["resized"] else None
(workload,) = [each for each in workloads(op, given["device"], dtype, samples) if each.name == given["sample"]]
if given["device"] == "cuda":
    torch.cuda.synchronize()
began = time.perf_counter()
call = call_for(contender(op, given["contender"], given["device"]), workload.values, op.signature,
                "both" if workload.has_gradient else "forward")
call()
if given["device"] == "cuda":
    torch.cuda.synchronize()
print("seconds", time.perf_counter() - began)
"""


def first_call_seconds(op: Op, row: Row, device: str, threads: int, *, resized: bool = False) -> float:
    """Of forward and backward, where there is one, for the first time, on what a row ran on; `resized`: a sample that
    is not the op's own, by its shape. Raises RuntimeError where it does not run alone."""
    given = {
        "op": op.name, "module": op.__module__, "file": _file(op), "device": device, "threads": threads,
        "resized": resized, "path": sys.path, **{key: row[key] for key in ("contender", "dtype", "sample")},
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="opsmith_cold_") as folder:
        environment = {
            **child_process.environment(),
            "OPSMITH_CACHE_DIR": os.path.join(folder, "opsmith"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
            "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
        }
        command = [sys.executable, "-c", _PROGRAM, json.dumps(given)]
        try:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"it took longer than {SECONDS:.0f} s") from None
    for line in ran.stdout.splitlines():
        if line.startswith("seconds "):
            return round(float(line.split()[1]), 3)
    raise RuntimeError((ran.stderr.strip().splitlines() or [f"it ended with {ran.returncode}"])[-1])


def _file(op: Op) -> str | None:
    """Of a module that is no part of a package: its name may be another's in a new process."""
    package = getattr(sys.modules.get(op.__module__), "__package__", "")
    code = getattr(op.reference, "__code__", None)
    file = os.path.abspath(code.co_filename) if code is not None else ""
    return None if package in sys.modules or not os.path.isfile(file) else file
