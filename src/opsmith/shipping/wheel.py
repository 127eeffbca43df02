"""A project's wheel with prebuilt files: the wheel that its own build backend makes, the files, and a platform tag.

Equal inputs give equal bytes: members are sorted and carry one date, SOURCE_DATE_EPOCH if it is set.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import WheelError
from ..toolchain.cache import PREBUILT
from .audit import audited, installed, platform_tag
from .staging import staged_file

_EARLIEST = 315532800  # 1980-01-01, before which zip files have no dates
_FILE, _EXECUTABLE = 0o100644, 0o100755


class _Member(NamedTuple):
    contents: bytes
    mode: int


def project_of(directory: Path) -> Path:
    """The project that a package's directory belongs to. Raises WheelError."""
    for place in directory.resolve().parents[:4]:
        if (place / "pyproject.toml").is_file() or (place / "setup.py").is_file():
            return place
    raise WheelError(
        directory, "no pyproject.toml is above it. Build from the project's sources, not an installed copy"
    )


def make_wheel(project: Path, package: str, prebuilt: Path, into: Path) -> Path:
    """The path of the wheel of `project`, in which the files of the directory `prebuilt` are those of `package`.

    Its platform is the audit's; any, if nothing is built. Nothing is left in `into` if it fails. Raises WheelError.
    """
    with tempfile.TemporaryDirectory(prefix="opsmith-wheel-") as scratch:
        pure = _built(project, Path(scratch))
        members = _members(pure)
    name, version, *_, python, abi, platform = pure.name.removesuffix(".whl").split("-")
    if platform != "any":
        raise WheelError(
            project,
            f"its build backend makes a wheel for {platform}, but prebuilt files need one for any platform. "
            "Compiled parts belong in opsmith.extension, or in a project of their own",
        )
    place = package.replace(".", "/")
    if f"{place}/__init__.py" not in members:
        raise WheelError(project, f"its wheel has no {place}/__init__.py, so it does not hold the package {package}")
    members = {name: each for name, each in members.items() if not name.startswith(f"{place}/{PREBUILT}/")}
    for path in sorted(path for path in prebuilt.rglob("*") if path.is_file()):
        members[f"{place}/{PREBUILT}/{path.relative_to(prebuilt).as_posix()}"] = _Member(path.read_bytes(), _FILE)
    information = f"{name}-{version}.dist-info"
    if any((prebuilt / "artifacts").iterdir()):
        platform = platform_tag(audited(prebuilt))
        members[f"{information}/WHEEL"] = _retagged(members[f"{information}/WHEEL"], f"{abi}-{platform}")
    return _written(members, information, into / f"{name}-{version}-{python}-{abi}-{platform}.whl")


def _built(project: Path, scratch: Path) -> Path:
    """The wheel that the project's own backend makes."""
    if installed("build"):
        options = [] if _lacks_backend(project) else ["--no-isolation"]
        # Not --wheel: a wheel of the source distribution leaves out files of an earlier build in the project.
        command = [sys.executable, "-m", "build", *options, "--outdir", str(scratch), str(project)]
    elif installed("pip"):
        options = ["--no-deps", "--disable-pip-version-check", "--wheel-dir", str(scratch)]
        command = [sys.executable, "-m", "pip", "wheel", *options, str(project)]
    else:
        raise WheelError(project, "neither build nor pip is installed. Install one:  pip install build")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(_epoch())}
    done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
    found = sorted(scratch.glob("*.whl"))
    if done.returncode != 0 or len(found) != 1:
        raise WheelError(project, "its build backend failed. Its last lines", (done.stdout + done.stderr).strip())
    return found[0]


def _lacks_backend(project: Path) -> bool:
    """Whether the backend must be installed, in an isolated environment."""
    from build import ProjectBuilder
    from pyproject_hooks import quiet_subprocess_runner

    try:
        return bool(ProjectBuilder(project, runner=quiet_subprocess_runner).check_dependencies("wheel"))
    except Exception:  # the backend is not installed, or pyproject.toml is wrong: the build reports it
        return True


def _members(wheel: Path) -> dict[str, _Member]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            each.filename: _Member(archive.read(each), _EXECUTABLE if each.external_attr >> 16 & 0o100 else _FILE)
            for each in archive.infolist()
            if not each.is_dir() and not re.fullmatch(r"[^/]*\.dist-info/RECORD(\.jws|\.p7s)?", each.filename)
        }


def _retagged(wheel: _Member, abi_and_platform: str) -> _Member:
    """The file WHEEL for a platform."""
    text = wheel.contents.decode()
    text = re.sub(r"(?m)^(Tag: [^-\n]+)-.*$", rf"\1-{abi_and_platform}", text)
    text = re.sub(r"(?m)^(Root-Is-Purelib: ).*$", r"\1false", text)
    return wheel._replace(contents=text.encode())


def _written(members: Mapping[str, _Member], information: str, path: Path) -> Path:
    record = f"{information}/RECORD"
    # The metadata goes last, where installers, which read it first, find it without reading the whole file.
    ordered = sorted(members, key=lambda name: (name.startswith(f"{information}/"), name))
    with staged_file(path, 0o644) as scratch, zipfile.ZipFile(scratch, "w") as archive:
        for name in ordered:
            _add(archive, name, members[name])
        _add(archive, record, _Member(_record(members, ordered, record), _FILE))
    return path


def _add(archive: zipfile.ZipFile, name: str, member: _Member) -> None:
    entry = zipfile.ZipInfo(name, time.gmtime(_epoch())[:6])
    entry.create_system, entry.external_attr = 3, member.mode << 16  # as on Unix
    archive.writestr(entry, member.contents, zipfile.ZIP_DEFLATED, 9)


def _record(members: Mapping[str, _Member], ordered: list[str], own: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name in ordered:
        digest = base64.urlsafe_b64encode(hashlib.sha256(members[name].contents).digest()).rstrip(b"=").decode()
        writer.writerow([name, f"sha256={digest}", len(members[name].contents)])
    writer.writerow([own, "", ""])
    return text.getvalue().encode()


def _epoch() -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    return max(int(given), _EARLIEST) if given.isdecimal() else _EARLIEST
