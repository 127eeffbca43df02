"""Sources inside a zip file, such as a package that Python imports from one: compilers get them as files."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePosixPath

from .cache import cache_key, obtain


def as_file(path: Path) -> Path | None:
    """The file that a path inside a zip file names, with all that is in its directory there; None for another path."""
    archive = next((each for each in path.parents if each.is_file()), None)
    if archive is None or not zipfile.is_zipfile(archive):
        return None
    wanted = PurePosixPath(*path.relative_to(archive).parts)
    with zipfile.ZipFile(archive) as held:
        beside = {
            str(PurePosixPath(name).relative_to(wanted.parent)): name
            for name in held.namelist()
            if not name.endswith("/") and PurePosixPath(name).is_relative_to(wanted.parent)
        }
        if wanted.name not in beside:
            return None
        contents = {place: held.read(name) for place, name in sorted(beside.items())}
    key = cache_key(kind="unzipped", sources=contents, flags=(), arch="", abi="")

    def write(workdir: Path) -> None:
        for place, data in contents.items():
            (workdir / place).parent.mkdir(parents=True, exist_ok=True)
            (workdir / place).write_bytes(data)

    return obtain(key, write, label=f"the files of {archive.name}", filenames=list(contents)).path(wanted.name)
