"""The time of the first call in a new process with empty caches."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from ..operator import child_process
from ..operator.op import Op
from ..operator.registry import get
from .contenders import contender
from .results import Row
from .run import workloads
from .shapes import parsed, resized
from .timing import synchronizer
from .workload import call_for

SECONDS = 600.0


def first_call_seconds(op: Op, row: Row, device: str, threads: int, *, resized: bool = False) -> float:
    """The time of the first forward and backward, if there is one, on a row's sample. `resized`: the sample is a shape,
    not one of the op's own. Raises RuntimeError if the op cannot run in a new process."""
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
        command = [sys.executable, "-c", f"from {__name__} import main; main()", json.dumps(given)]
        try:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"it took longer than {SECONDS:.0f} s") from None
    for line in ran.stdout.splitlines():
        if line.startswith("seconds "):
            return round(float(line.split()[1]), 3)
    raise RuntimeError((ran.stderr.strip().splitlines() or [f"it ended with {ran.returncode}"])[-1])


def main() -> None:
    """Prints the seconds of the call that the first argument describes."""
    given = json.loads(sys.argv[1])
    sys.path[:] = given["path"]  # only now: a file beside the op's may have the name of a module that torch imports
    with child_process.until_parent_call():
        _import(given)
    if given["device"] == "cpu":
        torch.set_num_threads(given["threads"])
    op, dtype = get(given["op"]), getattr(torch, given["dtype"])
    samples = [resized(op, parsed(given["sample"]), given["device"], dtype)] if given["resized"] else None
    (workload,) = [each for each in workloads(op, given["device"], dtype, samples) if each.name == given["sample"]]
    wait = synchronizer(given["device"]) or (lambda: None)
    wait()
    began = time.perf_counter()
    function = contender(op, given["contender"], given["device"])
    call_for(function, workload.values, op.signature, "both" if workload.has_gradient else "forward")()
    wait()
    print("seconds", time.perf_counter() - began)


def _import(given: dict[str, Any]) -> None:
    if not given["file"]:
        importlib.import_module(given["module"])
        return
    spec = importlib.util.spec_from_file_location("opsmith_cold", given["file"])
    assert spec is not None and spec.loader is not None
    sys.modules["opsmith_cold"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _file(op: Op) -> str | None:
    """The file of a module outside packages, whose name may mean another module in a new process."""
    package = getattr(sys.modules.get(op.__module__), "__package__", "")
    code = getattr(op.reference, "__code__", None)
    file = os.path.abspath(code.co_filename) if code is not None else ""
    return None if package in sys.modules or not os.path.isfile(file) else file
