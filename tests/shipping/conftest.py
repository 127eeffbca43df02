"""Packages to build, built ones, and the machine of a user without a compiler."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from packages import PACKAGE, SOURCES, Once, Run, build, python, written


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package's directory. Kernels that another test has built are in the cache."""
    return written(tmp_path)


@pytest.fixture
def new_package(tmp_path: Path) -> Path:
    """A package of which no other test has built anything."""
    return written(tmp_path, str(tmp_path))


@pytest.fixture(scope="session")
def built_once(once: Once) -> tuple[Path, str]:
    """A package that has been built for CPUs, and what the build printed."""

    def make(directory: Path) -> None:
        done = build(written(directory), "--no-cuda")
        (directory / "printed").write_text(done.stdout + done.stderr)

    directory = once("built", make)
    return directory / PACKAGE, (directory / "printed").read_text()


@pytest.fixture
def built(built_once: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of the built package."""
    copy = tmp_path / "project"
    shutil.copytree(built_once[0].parents[1], copy)
    return copy / "src" / "aheadlib"


@pytest.fixture(scope="session")
def planned_cache(once: Once) -> Path:
    """A cache with opsmith's launch planner and nothing else, as opsmith's own wheel brings it."""

    def make(cache: Path) -> None:
        cache.chmod(0o700)
        script = "import torch, opsmith; opsmith.ops.square(torch.ones(2))"
        python(script, cache, OPSMITH_RUNTIME="python")
        for artifact in (cache / "artifacts").iterdir():
            if not any("planner" in each.name for each in artifact.iterdir()):
                shutil.rmtree(artifact)

    return once("planned", make)


@pytest.fixture
def user(planned_cache: Path) -> Run:
    """user(package, script) -> what it prints on a machine that has the package and no compiler."""

    def run(package: Path, script: str) -> str:
        path = f"{SOURCES}{os.pathsep}{package.parent}"
        missing = {"CXX": str(package / "no compiler"), "PATH": ""}
        return python(script, planned_cache, PYTHONPATH=path, OPSMITH_RUNTIME="python", **missing)

    return run
