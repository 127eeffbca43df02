"""docs/ship.md: every command of the guide works, one after the other, and its end is what it promises."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from packages import SOURCES

from opsmith.toolchain import cache_directory, manylinux

GUIDE = Path(__file__).parents[2] / "docs" / "ship.md"
ONE_DTYPE = (
    "sed -i 's/^    rows = 4096/    if dtype is not torch.float32:\\n        return\\n&/' src/swiftops/ops/*/op.py"
)
"""Edits the samples, as the guide asks its reader to: kernels of each dtype take their time to build."""
COMMANDS = re.findall(r"^\$ (.*)$", GUIDE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A user's environment: the commands opsmith and pip, and packages of its own over those of the tests."""
    home = tmp_path_factory.mktemp("user")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "venv")], check=True)
    python = home / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (home / "venv" / "lib" / version / "site-packages" / "tests.pth").write_text(sysconfig.get_path("purelib"))
    for name, module in (("opsmith", "opsmith.cli"), ("pip", "pip")):
        command = home / "venv" / "bin" / name
        command.write_text(f'#!/bin/sh\nexec {python} -m {module} "$@"\n')
        command.chmod(0o755)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "COLUMNS": "200"}
    settings["OPSMITH_CACHE_DIR"] = str(cache_directory())  # which has the launch planner
    return {**os.environ, **settings, "PATH": path, "PYTHONPATH": str(SOURCES), "HOME": str(home)}


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the guide names the wheel of an x86_64 machine")
def test_every_command_of_the_guide_works(shell: dict[str, str], tmp_path: Path) -> None:
    if obstacle := manylinux.obstacle():
        pytest.skip(f"libraries of this machine are for systems as new as it is: {obstacle}")
    assert len(COMMANDS) >= 8
    script = "\n".join([*COMMANDS[:3], ONE_DTYPE, *COMMANDS[3:]])
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=shell, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    shown = " ".join(done.stdout.split())
    assert re.search(r"prebuilt \d+ kernels, for AVX2, AVX512, any processor cpu here \d+ prebuilt", shown), shown
    assert re.search(r"checked \d+ items passed.* level quick, the CPU", shown), shown
    assert re.search(r"speed forward, float32, .* us.*times as fast as eager", shown), shown
