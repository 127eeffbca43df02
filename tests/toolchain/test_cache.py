"""The cache contract within one process: keys, where artifacts are, and what is never loaded."""

from __future__ import annotations

import itertools
import json
import os
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opsmith.toolchain as toolchain
from opsmith import errors
from opsmith.toolchain import cache
from opsmith.toolchain.lock import KeyLock

from .support import files_under

PARTS = {"kind": "test", "sources": {"a.cpp": "int a;"}, "flags": ["-O3"], "arch": "x86_64", "abi": "plain"}
KEY = toolchain.cache_key(**PARTS)  # type: ignore[arg-type]


class Builds:
    """A build that counts its calls and writes one file."""

    def __init__(self, contents: bytes = b"built") -> None:
        self.contents = contents
        self.calls = 0

    def __call__(self, workdir: Path) -> Mapping[str, object]:
        self.calls += 1
        (workdir / "a.so").write_bytes(self.contents)
        (workdir / "intermediate.o").write_bytes(b"rubbish")
        return {"compiler": "g++ 99"}


def obtain(build: Builds) -> toolchain.Artifact:
    return toolchain.obtain(KEY, build, label="mylib::a", filenames=["a.so"])


# --- keys


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"sources": {"a.cpp": "int b;"}},
        {"sources": {"b.cpp": "int a;"}},
        {"sources": {"a.cpp": "int a;", "a.h": ""}},
        {"flags": ["-O3", "-ffast-math"]},
        {"flags": ["-O3 "]},
        {"arch": "aarch64"},
        {"abi": "torch-2.13"},
    ],
)
def test_every_part_changes_the_key(change: dict[str, object]) -> None:
    assert toolchain.cache_key(**{**PARTS, **change}) != KEY  # type: ignore[arg-type]


def test_the_order_sources_are_given_in_does_not_matter_and_text_is_its_bytes() -> None:
    key = toolchain.cache_key(kind="", sources={"a": "1", "b": "ü"}, flags=[], arch="", abi="")
    assert key == toolchain.cache_key(kind="", sources={"b": "ü".encode(), "a": b"1"}, flags=[], arch="", abi="")
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")


@st.composite
def readings(draw: st.DrawFn) -> list[tuple[list[str], dict[str, str]]]:
    """Two ways to cut the same text into flags and sources."""
    text = draw(st.text(alphabet="ab:;12", max_size=6))
    ways = []
    for _ in range(2):
        cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=5)))
        parts = [text[start:end] for start, end in itertools.pairwise([0, *cuts, len(text)])]
        flags = len(parts) - 2 * draw(st.integers(0, len(parts) // 2))
        ways.append((parts[:flags], dict(zip(parts[flags::2], parts[flags + 1 :: 2], strict=True))))
    return ways


@given(readings())
@settings(max_examples=300)
def test_different_builds_never_read_the_same(ways: list[tuple[list[str], dict[str, str]]]) -> None:
    keys = [toolchain.cache_key(kind="", sources=sources, flags=flags, arch="", abi="") for flags, sources in ways]
    assert (keys[0] == keys[1]) == (ways[0] == ways[1])


# --- where it is


def test_the_directory_is_opsmith_cache_dir_then_xdg_then_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, place in (("OPSMITH_CACHE_DIR", "chosen"), ("XDG_CACHE_HOME", "xdg"), ("HOME", "home")):
        monkeypatch.setenv(variable, str(tmp_path / place))
    assert toolchain.cache_directory() == tmp_path / "chosen"
    monkeypatch.delenv("OPSMITH_CACHE_DIR")
    assert toolchain.cache_directory() == tmp_path / "xdg" / "opsmith"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert toolchain.cache_directory() == tmp_path / "home" / ".cache" / "opsmith"


def test_the_directory_is_created_for_its_owner_alone(cache_dir: Path) -> None:
    previous = os.umask(0)
    try:
        obtain(Builds())
    finally:
        os.umask(previous)
    loose = [path for path in (cache_dir, *cache_dir.rglob("*")) if path.stat().st_mode & 0o022]
    assert loose == []
    assert stat.S_IMODE(cache_dir.stat().st_mode) == 0o700


def test_a_relative_directory_starts_at_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPSMITH_CACHE_DIR", "here")
    assert toolchain.cache_directory() == tmp_path / "here"


# --- found or built


def test_an_artifact_is_built_once_and_found_again(cache_dir: Path) -> None:
    build = Builds()
    first, second = obtain(build), obtain(build)
    assert build.calls == 1
    assert first.directory == second.directory
    assert second.path("a.so").read_bytes() == b"built"
    assert files_under(cache_dir) == [
        "artifacts",
        f"artifacts/{KEY}",
        f"artifacts/{KEY}/a.so",
        f"artifacts/{KEY}/provenance.json",
        "locks",
        "work",
    ]


def test_provenance_records_where_the_artifact_came_from() -> None:
    provenance = json.loads(obtain(Builds()).path("provenance.json").read_text())
    assert provenance["label"] == "mylib::a"
    assert provenance["compiler"] == "g++ 99"
    assert provenance["torch"] == sys.modules["torch"].__version__
    assert provenance["seconds"] >= 0
    assert provenance["files"]["a.so"]["size"] == 5
    assert len(provenance["files"]["a.so"]["sha256"]) == 64


def test_finding_takes_less_than_a_millisecond() -> None:
    obtain(Builds())
    best = min(_timed(lambda: obtain(Builds())) for _ in range(50))
    assert best < 1e-3


def _timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def test_threads_of_one_process_build_once() -> None:
    class SlowBuilds(Builds):
        def __call__(self, workdir: Path) -> Mapping[str, object]:
            time.sleep(0.2)
            return super().__call__(workdir)

    build = SlowBuilds()
    threads = [threading.Thread(target=obtain, args=(build,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert build.calls == 1


def test_a_build_that_fails_leaves_nothing_and_can_be_tried_again(cache_dir: Path) -> None:
    def fail(workdir: Path) -> None:
        (workdir / "a.so").write_bytes(b"half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        toolchain.obtain(KEY, fail, label="a", filenames=["a.so"])
    assert files_under(cache_dir) == ["artifacts", "locks", "work"]
    assert obtain(Builds()).path("a.so").read_bytes() == b"built"


def test_a_build_that_does_not_write_its_files_is_not_published(cache_dir: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the build of mylib::a wrote no a\.so"):
        toolchain.obtain(KEY, lambda workdir: None, label="mylib::a", filenames=["a.so"])
    assert files_under(cache_dir) == ["artifacts", "locks", "work"]


def test_prebuilt_artifacts_are_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "shipped"))
    obtain(Builds(b"prebuilt"))
    (tmp_path / "shipped").chmod(0o777)  # the package's own directory: its permissions are the installer's matter
    monkeypatch.setattr(cache, "prebuilt_directories", [tmp_path / "none", tmp_path / "shipped"])
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "own"))
    assert obtain(Builds()).path("a.so").read_bytes() == b"prebuilt"
    assert not (tmp_path / "own").exists()


# --- damaged


def flip_a_byte(entry: Path) -> None:
    (entry / "a.so").write_bytes(b"Built")


def truncate(entry: Path) -> None:
    os.truncate(entry / "a.so", 2)


def remove(entry: Path) -> None:
    (entry / "a.so").unlink()


def replace_by_a_link(entry: Path) -> None:
    (entry / "a.so").rename(entry / "elsewhere.so")
    (entry / "a.so").symlink_to(entry / "elsewhere.so")


def garble_provenance(entry: Path) -> None:
    (entry / "provenance.json").write_text('{"files": ')


def forget_provenance(entry: Path) -> None:
    (entry / "provenance.json").write_text("[]")


def let_others_write_the_file(entry: Path) -> None:
    (entry / "a.so").chmod(0o666)


def let_others_write_the_provenance(entry: Path) -> None:
    (entry / "provenance.json").chmod(0o620)


def let_others_write_the_entry(entry: Path) -> None:
    entry.chmod(0o777)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip_a_byte, r"the contents of a\.so have changed"),
        (truncate, r"a\.so has 2 bytes, and had 5 when it was built"),
        (remove, "FileNotFoundError"),
        (replace_by_a_link, "not a regular file"),
        (garble_provenance, "JSONDecodeError"),
        (forget_provenance, "TypeError"),
        (let_others_write_the_file, r"another user can write a\.so"),
        (let_others_write_the_provenance, "another user can write it"),
        (let_others_write_the_entry, "another user can write it"),
    ],
)
def test_a_damaged_entry_is_rebuilt_with_a_warning(
    damage: Callable[[Path], None], reason: str, cache_dir: Path
) -> None:
    before = files_under(obtain(Builds()).directory)
    damage(cache_dir / "artifacts" / KEY)
    build = Builds()
    with pytest.warns(errors.CorruptCacheEntryWarning, match=rf"of mylib::a is damaged .*{reason}"):
        artifact = obtain(build)
    assert build.calls == 1
    assert artifact.path("a.so").read_bytes() == b"built"
    assert files_under(artifact.directory) == before
    assert files_under(cache_dir / "work") == files_under(cache_dir / "locks") == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        obtain(build)
    assert build.calls == 1


def test_an_entry_without_provenance_is_replaced(cache_dir: Path) -> None:
    obtain(Builds())
    (cache_dir / "artifacts" / KEY / "provenance.json").unlink()
    build = Builds()
    assert obtain(build).path("a.so").read_bytes() == b"built"
    assert build.calls == 1


def test_a_damaged_prebuilt_artifact_is_passed_over_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "shipped"))
    shipped = obtain(Builds()).directory
    flip_a_byte(shipped)
    monkeypatch.setattr(cache, "prebuilt_directories", [tmp_path / "shipped"])
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "own"))
    with pytest.warns(errors.DamagedPrebuiltWarning, match=rf"in {shipped} are damaged .*Reinstall the package"):
        assert obtain(Builds()).directory.is_relative_to(tmp_path / "own")


# --- how large, and emptied


def test_usage_counts_entries_and_clear_removes_them(cache_dir: Path) -> None:
    assert toolchain.usage() == toolchain.Usage(cache_dir, 0, 0)
    assert toolchain.clear() == toolchain.Usage(cache_dir, 0, 0)
    artifact = obtain(Builds(b"x" * 1000))
    usage = toolchain.usage()
    assert usage.entries == 1
    assert usage.bytes == 1000 + artifact.path("provenance.json").stat().st_size
    assert toolchain.clear() == usage
    assert files_under(cache_dir) == ["artifacts", "locks", "work"]
    build = Builds()
    obtain(build)
    assert build.calls == 1


def test_clear_removes_what_dead_builders_left(cache_dir: Path) -> None:
    obtain(Builds())
    (cache_dir / "work" / f"{'0' * 64}.abcdefgh").mkdir()
    (cache_dir / "locks" / ("0" * 64)).touch()
    toolchain.clear()
    assert files_under(cache_dir) == ["artifacts", "locks", "work"]


def test_clear_keeps_an_entry_that_is_being_rebuilt(cache_dir: Path) -> None:
    artifact = obtain(Builds())
    lock = KeyLock(cache_dir / "locks" / KEY)
    assert lock.try_acquire()
    assert toolchain.clear().entries == 0
    assert artifact.path("a.so").is_file()
    lock.release()
    assert toolchain.clear().entries == 1
