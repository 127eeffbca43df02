"""Bars of extensions: how soon an edited source is built again, and how long a kernel's host code is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from opsmith import errors, toolchain

ROOT = Path(__file__).parents[2]

REBUILD = """
import sys, json
sys.path.insert(0, "benchmarks")
import build
print(json.dumps(build.measure(suffixes=(".cu",))))
"""


@pytest.mark.timing
def test_a_small_cuda_source_is_built_again_within_15_seconds() -> None:
    try:
        toolchain.find_nvcc()
    except errors.NvccNotFoundError as error:
        pytest.skip(str(error))
    done = subprocess.run([sys.executable, "-c", REBUILD], cwd=ROOT, capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout.splitlines()[-1])
    assert row["seconds"] <= row["bar"] == 15.0, row


def test_the_host_side_of_a_kernel_is_under_15_lines() -> None:
    lines = (ROOT / "examples" / "05_extension.cu").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("Tensor rms_norm_on_cuda("))
    last = lines.index("}", first)
    host = lines[first : last + 1]
    assert len(host) < 15
    assert all(step in "".join(host) for step in ("expect(", "current_stream(", "dispatch<", "launch("))
