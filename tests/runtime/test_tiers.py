"""Which tier a process runs, and that it always runs: with no compiler, a broken one, or a build under way."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opsmith.errors import CompilerNotFoundError
from opsmith.runtime import native
from opsmith.toolchain import find_cxx

ROOT = Path(__file__).parents[2]

SCRIPT = """
import torch, opsmith
from opsmith import runtime

@opsmith.op("tiers::square")
def square(x: torch.Tensor) -> torch.Tensor:
    return x * x

x = torch.ones(3, requires_grad=True)
square(x).sum().backward()
assert x.grad.tolist() == [2.0, 2.0, 2.0]
print(square._families.default.forward.attachment.tier, "|", runtime.reason())
"""


def run(cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "OPSMITH_CACHE_DIR": str(cache), "OPSMITH_RUNTIME": "", **environment}
    return subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, env=settings, capture_output=True, text=True)


def test_without_a_compiler_the_python_tier_serves(tmp_path: Path) -> None:
    done = run(tmp_path, CXX=str(tmp_path / "none"), PATH="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("python | ")
    assert "compiler" in done.stdout
    assert done.stderr == ""


def test_a_broken_compiler_is_tried_once_and_noted(tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    log = tmp_path / "log"
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = "--version" ] && echo "g++ (Debian) 12.2.0" && exit 0\n'
        f'case "$*" in *dumpversion*) echo 12; exit 0;; esac\necho compile >> {log}\nexit 1\n'
    )
    compiler.chmod(0o755)
    cache = tmp_path / "cache"
    first = run(cache, CXX=str(compiler))
    assert first.stdout.startswith("python | "), first.stderr
    deadline = time.monotonic() + 60
    while not list(cache.glob("runtime-failed-*")):
        assert time.monotonic() < deadline, "the background build left no note"
        time.sleep(0.1)
    second = run(cache, CXX=str(compiler))
    assert second.stdout.startswith("python | its build failed"), second.stdout + second.stderr
    time.sleep(1)
    assert log.read_text().count("compile") == 1


@pytest.fixture
def quick_compiler(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A compiler that copies the C++ runtime that `make setup` has compiled, which takes half a minute, and compiles
    everything else."""
    compiler = tmp_path_factory.mktemp("compiler") / "c++"
    try:
        command = shlex.join(find_cxx().command)
    except CompilerNotFoundError as error:
        pytest.skip(f"no C++ compiler on this machine: {error}")
    built = native.find()
    copy = f'case "$*" in *"-o {built.name}"*) exec cp {built} {built.name};; esac\n' if built else ""
    compiler.write_text(f'#!/bin/sh\n{copy}exec {command} "$@"\n')
    compiler.chmod(0o755)
    return str(compiler)


def test_the_next_process_has_what_the_first_began(tmp_path: Path, quick_compiler: str) -> None:
    first = run(tmp_path, CXX=quick_compiler)
    assert first.stdout.startswith("python | it was not built when this process started"), first.stderr
    assert first.stderr == "", "the build in the background says nothing"
    deadline = time.monotonic() + 180
    while not list(tmp_path.glob("artifacts/*/opsmith_runtime.so")):
        assert time.monotonic() < deadline, "the background build did not end"
        time.sleep(0.2)
    second = run(tmp_path, CXX=quick_compiler)
    assert second.stdout.startswith("native | built for this torch"), second.stdout + second.stderr
    assert run(tmp_path, OPSMITH_RUNTIME="python").stdout.startswith("python | OPSMITH_RUNTIME=python")


def test_native_by_demand_says_why_it_cannot_be(tmp_path: Path) -> None:
    done = run(tmp_path, OPSMITH_RUNTIME="native", CXX=str(tmp_path / "none"), PATH="")
    assert done.returncode != 0
    assert "CompilerNotFoundError" in done.stderr


def test_a_setting_that_is_no_tier(tmp_path: Path) -> None:
    done = run(tmp_path, OPSMITH_RUNTIME="fast")
    assert "OPSMITH_RUNTIME='fast' is not a runtime: set 'native' (C++), 'python', or leave it unset" in done.stderr
