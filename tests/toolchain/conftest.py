"""What toolchain tests are given: a cache of their own, compilers that misbehave on demand, and other processes."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import opsmith.toolchain as toolchain
from opsmith.toolchain import cache

from .support import Child


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Each test has its own cache and finds its own compilers."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(directory))
    for variable in ("CXX", "NVCC", "OPSMITH_QUIET"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cache, "_fallback_reasons", {})
    monkeypatch.setattr(cache, "_private", None)
    toolchain.forget()
    yield directory
    toolchain.forget()


@pytest.fixture
def use_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make CXX a shell script, in which ``version`` answers --version as g++ would, ``real`` runs g++, and ``wait_for``
    waits for a file to appear (20 s at most)."""

    def use(script: str) -> Path:
        path = tmp_path / "compiler"
        path.write_text(
            "#!/bin/sh\n"
            'version() { if [ "$1" = --version ]; then echo "g++ (test) 12.2.0"; exit 0; fi; }\n'
            'wait_for() { i=0; while [ ! -e "$1" ] && [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done; }\n'
            f'real() {{ {shutil.which("g++") or "c++"} "$@"; }}\n' + textwrap.dedent(script)
        )
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        toolchain.forget()
        return path

    return use


@pytest.fixture
def logging_compiler(tmp_path: Path, use_compiler: Callable[[str], Path]) -> Callable[[], int]:
    """Make CXX a compiler that takes note of each compilation; the fixture tells how many there were."""
    log = tmp_path / "compilations"
    use_compiler(f'version "$1"\necho "$@" >> {log}\nreal "$@"\n')
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(code: str, **environment: str) -> Child:
        children.append(Child(code, **environment))
        return children[-1]

    yield start
    for child in children:
        if child.process.poll() is None:
            child.kill()


@pytest.fixture
def mount_tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A small file system of its own, for disks that are full or read-only."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        place = tmp_path / f"mount{len(mounted)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", str(place)], capture_output=True, text=True
        )
        if done.returncode != 0:
            pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
