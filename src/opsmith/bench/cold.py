"""The first call in a new process with empty caches: what a user waits for before the first result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from ..op import Op

SECONDS = 600.0
_PROGRAM = """
import json, sys, time
import torch
given = json.loads(sys.argv[1])
import importlib, opsmith
importlib.import_module(given["module"])
from opsmith.bench.contenders import contender
from opsmith.bench.run import workloads
from opsmith.bench.workload import call_for
op = opsmith.get(given["op"])
(workload, *_) = workloads(op, given["device"], getattr(torch, given["dtype"]))
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


def first_call_seconds(op: Op, name: str, device: str, dtype: str) -> float | None:
    """Of forward and backward, where there is one, on the op's first sample of a dtype; None where it does not run
    alone."""
    given = json.dumps({"op": op.name, "module": op.module, "contender": name, "device": device, "dtype": dtype})
    with tempfile.TemporaryDirectory(prefix="opsmith_cold_") as folder:
        environment = {
            **os.environ,
            "OPSMITH_CACHE_DIR": os.path.join(folder, "opsmith"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
            "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        command = [sys.executable, "-c", _PROGRAM, given]
        try:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return None
    for line in ran.stdout.splitlines():
        if line.startswith("seconds "):
            return round(float(line.split()[1]), 3)
    return None
