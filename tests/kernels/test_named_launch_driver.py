"""What the CUDA driver is given for a launch by name from C++: what it is given for the same launch from Python.

The cases are in named_launch_process.py, and run in one process with a fake driver.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opsmith.errors import ToolMissingError
from opsmith.toolchain import find_nvrtc

from . import fake_cuda

PROCESS = Path(__file__).with_name("named_launch_process.py")
CASES = re.findall(r"^def (\w+)\(\) -> None:", PROCESS.read_text(), re.MULTILINE)
CASES.remove("forgotten")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> str:
    try:
        find_nvrtc()
    except ToolMissingError:
        pytest.skip("NVRTC is not installed")
    directory = tmp_path_factory.mktemp("driver")
    fake_cuda.libraries_in(directory)
    paths = os.pathsep.join([str(PROCESS.parents[1]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, str(PROCESS), str(directory)],
        env={**os.environ, "LD_LIBRARY_PATH": str(directory), "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_driver(outcome: str, case: str) -> None:
    failed = re.search(rf"fails {case}\n(.*?)^fails$", outcome, re.DOTALL | re.MULTILINE)
    assert f"holds {case}\n" in outcome, failed[1] if failed else outcome
