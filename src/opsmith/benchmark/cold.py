"""The time of the first call in a new process with empty caches."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from .. import runtime
from ..checks.reproduction import setup
from ..errors.base import exception_line
from ..operator import child_process
from ..operator.op import Op
from ..runtime import native
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
    arguments = row["contender"], row["dtype"], row["sample"], device, threads, resized
    lines = [
        "import sys, torch, opsmith",
        f"sys.path[:] = {sys.path}",  # only now: a file beside the op's may have the name of a module of torch's
        *setup(op, in_child=True),
        f"from {__name__} import print_seconds",
        f"print_seconds(op, *{arguments})",
    ]
    with tempfile.TemporaryDirectory(prefix="opsmith_cold_") as folder:
        environment = {
            **child_process.environment(),
            "OPSMITH_CACHE_DIR": os.path.join(folder, "opsmith"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
            "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
        }
        if native.torch_release() not in native.releases_prebuilt():
            # The tier that it would have without a prebuilt runtime, whose build would run beside what is measured.
            environment[runtime.VARIABLE] = "python"
        command = [sys.executable, "-c", "\n".join(lines)]
        try:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"it took longer than {SECONDS:.0f} s") from None
    for line in ran.stdout.splitlines():
        if line.startswith("seconds "):
            return round(float(line.split()[1]), 3)
    raise RuntimeError(exception_line(ran.stderr) or f"it ended with {ran.returncode}")


def print_seconds(op: Op, name: str, type: str, sample: str, device: str, threads: int, is_shape: bool) -> None:
    """Calls a contender for the first time, in the new process."""
    if device == "cpu":
        torch.set_num_threads(threads)
    dtype = getattr(torch, type)
    samples = [resized(op, parsed(sample), device, dtype)] if is_shape else None
    (workload,) = [each for each in workloads(op, device, dtype, samples) if each.name == sample]
    wait = synchronizer(device) or (lambda: None)
    wait()
    began = time.perf_counter()
    function = contender(op, name, device)
    call_for(function, workload.values, op.signature, "both" if workload.has_gradient else "forward")()
    wait()
    print("seconds", time.perf_counter() - began)
