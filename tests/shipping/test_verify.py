"""`opsmith build --verify` builds a second time and compares what users get: the wheel's own bytes, the Hub's files."""

from __future__ import annotations

from pathlib import Path

import pytest
from packages import build

OPS = """
import torch

import opsmith

@opsmith.pointwise("verified::doubled")
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_samples
def _(device, dtype):
    if dtype is torch.float32:
        yield opsmith.Sample((torch.ones(4, device=device),))
"""
PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "verified"
version = "1"
"""
NOW = """
import time

from setuptools import setup

setup(description=str(time.time_ns()))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    place = tmp_path / "project" / "src" / "verified"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text(OPS)
    (place.parents[1] / "pyproject.toml").write_text(PROJECT)
    return place


@pytest.mark.long
@pytest.mark.parametrize("options", [["--wheel"], ["--hf-kernel", "hub"]], ids=["wheel", "hub"])
def test_equal_sources_give_equal_bytes(package: Path, options: list[str]) -> None:
    done = build(package, "--no-cuda", "--verify", *options)
    assert "all identical" in done.stdout


def test_a_wheel_that_differs_outside_the_prebuilt_files_is_found(package: Path) -> None:
    project = package.parents[1]
    (project / "pyproject.toml").write_text(PROJECT + 'dynamic = ["description"]\n')
    (project / "setup.py").write_text(NOW)
    done = build(package, "--no-cuda", "--verify", "--wheel", fails=True)
    assert "files differ in a second build" in done.stdout
    assert "verified-1.dist-info/METADATA" in done.stdout and "prebuilt" not in done.stdout.partition("differ")[2]
