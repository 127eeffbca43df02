"""Packages to build, built ones, and the machine of a user without a compiler."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from packages import SOURCES, Run, build, python, written


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.fixture
def new_package(tmp_path: Path) -> Path:
    """A package of which no other test has built anything."""
    return written(tmp_path, str(tmp_path))


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    package = written(tmp_path_factory.mktemp("built"))
    done = build(package, "--no-cuda")
    return package, done.stdout + done.stderr


@pytest.fixture
def built(built_once: tuple[Path, str], tmp_path: Path) -> Path:
    """A package that has been built for processors."""
    copy = tmp_path / "project"
    shutil.copytree(built_once[0].parents[1], copy)
    return copy / "src" / "aheadlib"


@pytest.fixture(scope="session")
def planned_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with opsmith's launch planner and nothing else, as opsmith's own wheel brings it."""
    cache = tmp_path_factory.mktemp("planned") / "cache"
    script = "import torch, opsmith; opsmith.ops.square(torch.ones(2))"
    python(script, cache, OPSMITH_RUNTIME="python")
    for artifact in (cache / "artifacts").iterdir():
        if not any("planner" in each.name for each in artifact.iterdir()):
            for each in artifact.iterdir():
                each.unlink()
            artifact.rmdir()
    return cache


@pytest.fixture
def user(planned_cache: Path) -> Run:
    """user(package, script) -> what it prints on a machine that has the package and no compiler."""

    def run(package: Path, script: str) -> str:
        path = f"{SOURCES}{os.pathsep}{package.parent}"
        missing = {"CXX": str(package / "no compiler"), "PATH": ""}
        return python(script, planned_cache, PYTHONPATH=path, OPSMITH_RUNTIME="python", **missing)

    return run
