"""A project's wheel has its prebuilt files, a tag that says where it installs, and the same bytes every time."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packages import SOURCES, build, python

from opsmith.errors import WheelError
from opsmith.shipping import wheel as wheels
from opsmith.toolchain import manylinux

PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "ahead-lib"
version = "1.2"
requires-python = ">=3.10"

[tool.setuptools.package-data]
aheadlib = ["*.cpp"]
"""
DATE = 1700000000
USE = """
import torch, warnings
warnings.simplefilter("error")
import aheadlib
from aheadlib.ops import bent, negated
x, bias = torch.randn(4, 8), torch.randn(8)
assert torch.equal(bent(x, bias), bent.inline(x, bias)) and torch.equal(negated(x), -x)
print(aheadlib.__file__)
"""


def made(project: Path, into: str = "dist") -> Path:
    return wheels.make_wheel(project, "aheadlib", project / "prebuilt", project / into)


def project_of(built: Path) -> Path:
    """Of a built package: the prebuilt files are beside it."""
    place = built.parents[1]
    (place / "pyproject.toml").write_text(PROJECT)
    shutil.move(built / "prebuilt", place / "prebuilt")
    return place


@pytest.fixture
def project(built: Path) -> Path:
    return project_of(built)


@pytest.fixture(scope="module")
def wheel(built_once: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In the directory dist of its project, with the date DATE."""
    place = tmp_path_factory.mktemp("wheel") / "project"
    shutil.copytree(built_once[0].parents[1], place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", str(DATE))
        return made(project_of(place / "src" / "aheadlib"))


def installed(wheel: Path, place: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-deps", "--target", str(place), str(wheel)], check=True)
    return place


def test_an_installed_wheel_needs_no_compiler(wheel: Path, planned_cache: Path, tmp_path: Path) -> None:
    if not manylinux.obstacle():
        machine = wheels.platform_tag([]).removeprefix(f"{manylinux.POLICY}_")
        assert wheel.name == f"ahead_lib-1.2-py3-none-manylinux_2_28_{machine}.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        facts = archive.read("ahead_lib-1.2.dist-info/WHEEL").decode()
        assert "Root-Is-Purelib: false" in facts and f"Tag: {wheel.stem.partition('-1.2-')[2]}" in facts
        assert not any(name.startswith("build/") or "/prebuilt/prebuilt" in name for name in archive.namelist())
    place = installed(wheel, tmp_path / "site")
    missing = {"CXX": str(place / "none"), "PATH": "", "OPSMITH_RUNTIME": "python"}
    path = f"{SOURCES}{os.pathsep}{place}"
    assert str(place) in python(USE, planned_cache, PYTHONPATH=path, **missing)


def test_a_package_of_which_nothing_is_built_gets_a_wheel_for_every_platform(project: Path) -> None:
    package = project / "src" / "aheadlib"
    lines = ["import opsmith", "from torch import Tensor", "@opsmith.op('aheadlib::same')"]
    (package / "ops.py").write_text("\n".join([*lines, "def same(x: Tensor) -> Tensor: return x + 0"]))
    done = build(package, "--wheel")
    assert "aheadlib has nothing to build ahead of time" in done.stderr
    (wheel,) = (project / "dist").iterdir()
    assert wheel.name == "ahead_lib-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert "Root-Is-Purelib: true" in archive.read("ahead_lib-1.2.dist-info/WHEEL").decode()
        assert "aheadlib/prebuilt/manifest.json" in archive.namelist()


def test_every_file_is_in_the_record_and_has_the_given_date(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        record = list(csv.reader(archive.read("ahead_lib-1.2.dist-info/RECORD").decode().splitlines()))
        assert sorted(row[0] for row in record) == sorted(archive.namelist())
        assert any(name.startswith("aheadlib/prebuilt/artifacts/") for name in archive.namelist())
        assert {member.date_time for member in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
        for name, digest, count in record[:-1]:
            contents = archive.read(name)
            value = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
            assert (digest, count) == (f"sha256={value}", str(len(contents)))


def test_a_wheel_made_twice_has_the_same_bytes(project: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(DATE))
    for path in project.rglob("*"):
        os.utime(path, (1e9, 1e9))
    assert made(project).read_bytes() == wheel.read_bytes(), "of another copy, with other times"


def test_without_the_front_end_pip_makes_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "installed", lambda name: False)
    with pytest.raises(WheelError, match="neither build nor pip is installed"):
        made(project)
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # sic: pip reads this variable as the option's own value
    monkeypatch.setattr(wheels, "installed", lambda name: name == "pip")
    assert made(project).exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('build-backend = "', 'build-backend = "nowhere.', "its build backend failed"),
        ("[tool.setuptools.", "[tool.setuptools]\npackages = []\n[tool.setuptools.", "has no aheadlib/__init__.py"),
    ],
)
def test_a_project_without_a_wheel_is_named(project: Path, old: str, new: str, message: str) -> None:
    file = project / "pyproject.toml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(WheelError, match=message):
        made(project)
    assert not (project / "dist").exists()


def test_an_installed_package_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=r"no pyproject\.toml is above it"):
        wheels.project_of(tmp_path / "site-packages" / "mylib")
