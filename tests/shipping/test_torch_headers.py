"""The headers of any torch come from pip's index, in two requests where the server sends parts of files."""

from __future__ import annotations

import functools
import os
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from opsmith.errors import TorchReleaseError
from opsmith.shipping import torch_headers
from opsmith.toolchain import manylinux

HEADERS = {"torch/include/torch/version.h": "#define VERSION 2", "torch/include/c10/a.h": "int a;\n" * 2000}


class Index(ThreadingHTTPServer):
    sends_parts = True
    requests: list[str]


class Handler(SimpleHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        path = Path(self.translate_path(self.path))
        if not wanted or not self.server.sends_parts or not path.is_file():
            self.server.requests.append("whole")
            return super().do_GET()
        self.server.requests.append(wanted)
        contents = path.read_bytes()
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        begin = int(first) if first else max(0, len(contents) - int(last))
        part = contents[begin : int(last) + 1 if first else None]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(part) - 1}/{len(contents)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)
        return None

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """A package index with three patches of two releases, which pip's settings name."""
    place = tmp_path / "index" / "torch"
    place.mkdir(parents=True)
    for version in ("2.11.0", "2.12.0", "2.12.1"):
        write_wheel(place, version)
    server = Index(("127.0.0.1", 0), functools.partial(Handler, directory=str(place.parent)))
    server.requests = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(torch_headers, "_DIRECTORY_BYTES", 2000)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def write_wheel(place: Path, version: str) -> None:
    facts = f"torch-{version}.dist-info"
    tag = f"py3-none-{manylinux.POLICY}_{torch_headers.platform.machine()}"
    members = {
        "torch/__init__.py": "",
        **{name: f"{text}  // {version}" for name, text in HEADERS.items()},
        "torch/lib/libtorch.so": os.urandom(50_000).hex(),
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{facts}/WHEEL": f"Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{facts}/RECORD": "",
    }
    with zipfile.ZipFile(place / f"torch-{version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, contents in members.items():
            wheel.writestr(name, contents)


def headers_of(release: torch_headers.Release) -> dict[str, str]:
    with torch_headers.unpacked(release) as include:
        return {str(path.relative_to(include)): path.read_text() for path in include.rglob("*.h")}


def test_headers_of_the_last_patches_come_in_two_requests(index: Index) -> None:
    oldest, newest = torch_headers.releases()
    assert (oldest.version, newest.version, newest.minor) == ("2.11.0", "2.12.1", "2.12")
    index.requests.clear()
    wanted = {name.removeprefix("torch/include/"): f"{text}  // 2.12.1" for name, text in HEADERS.items()}
    assert headers_of(newest) == wanted
    assert [each.partition("=")[0] for each in index.requests] == ["bytes", "bytes"]
    assert headers_of(newest) == wanted and len(index.requests) == 2, "the second time they are in the cache"


def test_from_a_server_without_range_requests_the_whole_file_is_read(index: Index) -> None:
    index.sends_parts = False
    assert headers_of(torch_headers.release("==2.11.*"))["torch/version.h"] == "#define VERSION 2  // 2.11.0"


def test_a_release_that_the_index_lacks_is_named(index: Index) -> None:
    with pytest.raises(TorchReleaseError, match=r"(?s)pip finds no torch==2\.99\.\*.*No matching.*PIP_INDEX_URL"):
        torch_headers.release("==2.99.*")
