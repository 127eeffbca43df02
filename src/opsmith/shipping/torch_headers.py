"""torch's headers in any release, from the package index.

pip reports which file it would install, with all of its settings (index, certificates, local files). torch's wheel is
half a gigabyte, of which the headers are 2 %: two range requests read the archive's directory and then the headers,
which are adjacent. If the server or the certificates do not permit that, pip downloads the whole file.
"""

from __future__ import annotations

import io
import json
import os
import platform
import ssl
import struct
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import TorchReleaseError
from ..toolchain import cache_key, manylinux, obtain
from ..toolchain.torch_release import OLDEST, minor_release

HEADERS = "torch/include/"
_ARCHIVE = "headers.zip"
_DIRECTORY_BYTES = 3_000_000  # torch's has 1.3 MB
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a member of a zip file: it ends with the lengths of the name and of extras
_SECONDS = 60


@dataclass(frozen=True)
class Release:
    """A torch that pip would install on this kind of machine."""

    version: str
    url: str

    @property
    def minor(self) -> str:
        """ "2.13" of "2.13.0+cpu"."""
        return ".".join(map(str, minor_release(self.version)))


def releases() -> list[Release]:
    """The last patch of every minor release of torch since 2.11. Raises TorchReleaseError."""
    newest = release(f">={OLDEST[0]}.{OLDEST[1]}")
    found = []
    major, minor = OLDEST
    while (major, minor) < minor_release(newest.version):
        try:
            found.append(release(f"=={major}.{minor}.*"))
            minor += 1
        except TorchReleaseError:
            if major == minor_release(newest.version)[0]:
                raise
            major, minor = major + 1, 0
    return [*found, newest]


def release(wanted: str) -> Release:
    """The newest torch for a requirement such as "==2.13.*". Raises TorchReleaseError."""
    with tempfile.TemporaryDirectory(prefix="opsmith-torch-") as scratch:
        report = Path(scratch, "report.json")
        # With --platform pip requires a target directory; a dry run does not write to it.
        platform_options = [*_platform(), "--target", scratch]
        _pip("install", "--dry-run", "--ignore-installed", "--report", str(report), *platform_options, wanted=wanted)
        (found,) = json.loads(report.read_text())["install"]
    return Release(found["metadata"]["version"], found["download_info"]["url"])


@contextmanager
def unpacked(release: Release) -> Iterator[Path]:
    """A temporary directory with torch/include of a release, which the cache keeps packed. Raises TorchReleaseError."""
    key = cache_key(kind="torch-headers", sources={}, flags=[release.version], arch=platform.machine(), abi="plain")

    def build(workdir: Path) -> dict[str, object]:
        (workdir / _ARCHIVE).write_bytes(_packed(release))
        return {"compiler": "none", "command": release.url}

    found = obtain(key, build, label=f"the headers of torch {release.version}", filenames=[_ARCHIVE])
    with tempfile.TemporaryDirectory(prefix="opsmith-torch-") as directory:
        with zipfile.ZipFile(found.path(_ARCHIVE)) as archive:
            archive.extractall(directory)
        yield Path(directory, HEADERS)


def _platform() -> list[str]:
    return ["--no-deps", "--only-binary=:all:", f"--platform={manylinux.POLICY}_{platform.machine()}"]


def _pip(*arguments: str, wanted: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments, f"torch{wanted}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TorchReleaseError(f"torch{wanted}", done.stderr or done.stdout or "pip gave no reason")


def _packed(release: Release) -> bytes:
    """A zip file of the headers alone."""
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, contents in members(release, _is_header):
            archive.writestr(zipfile.ZipInfo(name), contents)
    return kept.getvalue()


def members(release: Release, wanted: Callable[[str], bool]) -> list[tuple[str, bytes]]:
    """The names and the contents of the wanted files of a release, which are adjacent in its wheel."""
    parts = urlsplit(release.url)
    if parts.scheme == "file":
        return _of_file(Path(unquote(parts.path)), wanted)
    try:
        return _by_ranges(_Remote(release.url), wanted)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, struct.error):
        with tempfile.TemporaryDirectory(prefix="opsmith-torch-") as scratch:
            _pip("download", "--dest", scratch, *_platform(), wanted=f"=={release.version}")
            return _of_file(next(Path(scratch).glob("*.whl")), wanted)


def _of_file(wheel: Path, wanted: Callable[[str], bool]) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(wheel) as archive:
        return [(name, archive.read(name)) for name in archive.namelist() if wanted(name)]


def _is_header(name: str) -> bool:
    return name.startswith(HEADERS) and not name.endswith("/")


# --- parts of a file on a server --------------------------------------------------------------------------------------


class _Remote:
    """A file on a server, read in parts. Raises OSError if the server does not support range requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        proxies = {"http": proxy, "https": proxy} if (proxy := _pip_setting("proxy")) else None
        context = ssl.create_default_context(cafile=_pip_setting("cert"))
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=context)
        )
        self.size = 0

    def last(self, count: int) -> bytes:
        return self._get(f"-{count}")

    def part(self, begin: int, end: int) -> bytes:
        return self._get(f"{begin}-{end - 1}")

    def _get(self, bytes_wanted: str) -> bytes:
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={bytes_wanted}"})
        with self._opener.open(request, timeout=_SECONDS) as answer:
            if answer.status != 206:
                raise OSError(f"{urlsplit(self.url).hostname} does not support range requests")
            self.size = int(answer.headers["Content-Range"].rpartition("/")[2])
            return bytes(answer.read())


def _by_ranges(remote: _Remote, wanted: Callable[[str], bool]) -> list[tuple[str, bytes]]:
    tail = remote.last(_DIRECTORY_BYTES)
    start = remote.size - len(tail)
    with zipfile.ZipFile(_Tail(tail, start)) as archive:
        every = sorted(archive.infolist(), key=lambda member: member.header_offset)
        ends = [*(member.header_offset for member in every[1:]), archive.start_dir]
    found = [(member, end) for member, end in zip(every, ends, strict=True) if wanted(member.filename)]
    begin = found[0][0].header_offset
    data = remote.part(begin, found[-1][1])
    return [(member.filename, _contents(member, data, member.header_offset - begin)) for member, _ in found]


def _contents(member: zipfile.ZipInfo, data: bytes, at: int) -> bytes:
    name, extra = _LOCAL_HEADER.unpack_from(data, at)
    begin = at + _LOCAL_HEADER.size + name + extra
    packed = data[begin : begin + member.compress_size]
    contents = zlib.decompress(packed, -zlib.MAX_WBITS) if member.compress_type == zipfile.ZIP_DEFLATED else packed
    if zlib.crc32(contents) != member.CRC:
        raise ValueError(f"{member.filename} does not match its checksum")
    return contents


class _Tail(io.RawIOBase):
    """The end of an archive, which has the directory of its members: zipfile reads nothing else."""

    def __init__(self, tail: bytes, start: int) -> None:
        self._tail, self._start, self._position = tail, start, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._start + len(self._tail)}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        begin = self._position - self._start
        if begin < 0:
            raise ValueError("the archive's directory is longer than expected")
        found = self._tail[begin : None if size < 0 else begin + size]
        self._position += len(found)
        return found


def _pip_setting(name: str) -> str | None:
    """A setting of pip, from its environment variables or its files."""
    if given := os.environ.get(f"PIP_{name.upper()}"):
        return given
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "get", f"global.{name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None
