"""What the CUDA driver is given for a launch by name from C++: what it is given for the same launch from Python.

The cases are in named_launch_process.py, and run in one process with a fake driver.
"""

from __future__ import annotations

import re
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
    done = fake_cuda.process(PROCESS, tmp_path_factory.mktemp("driver"))
    return done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_driver(outcome: str, case: str) -> None:
    failed = re.search(rf"fails {case}\n(.*?)^fails$", outcome, re.DOTALL | re.MULTILINE)
    assert f"holds {case}\n" in outcome, failed[1] if failed else outcome
