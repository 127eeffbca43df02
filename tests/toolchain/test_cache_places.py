"""Cache directories that cannot be used: read-only, full, or open to other users. Work continues, or a named error."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import opsmith.toolchain as toolchain
from opsmith import errors

from .support import Child, files_under

SOURCE = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }'


def build() -> Path:
    return toolchain.compile_shared_library("answer", text=SOURCE, abi="plain")


def runs(library: Path) -> bool:
    return bool(toolchain.load_library(library).answer() == 42)


def fill_up(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(b"x" * 4096):
            pass


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the fallback goes in these tests."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_a_directory_that_cannot_be_created_falls_back_with_one_warning(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(errors.CacheFallbackWarning) as caught:
        library = build()
    assert runs(library)
    assert library.is_relative_to(temporary)
    (message,) = [str(warning.message) for warning in caught]
    assert f"The cache directory {tmp_path}/file/cache cannot be written: Not a directory" in message
    assert str(library.parents[2]) in message
    assert "Set OPSMITH_CACHE_DIR to your own directory with free space." in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build() == library
        toolchain.compile_shared_library("other", text=SOURCE, abi="plain")


def test_the_fallback_directory_lasts_for_the_user(temporary: Path, start: Callable[..., Child]) -> None:
    script = f"""
        library = toolchain.compile_shared_library("answer", text={SOURCE!r}, abi="plain")
        print(oct(library.parents[2].stat().st_mode & 0o777), library.stat().st_ino)
    """
    ended = [start(script, OPSMITH_CACHE_DIR="/proc/self/no-such-place", TMPDIR=str(temporary)).end() for _ in range(2)]
    assert [status for status, _, _ in ended] == [0, 0], ended
    (mode, inode), (_, again) = (output.split() for _, output, _ in ended)
    assert mode == "0o700"
    assert inode == again, "built once"
    assert "CacheFallbackWarning" in ended[0][2]
    assert f"Your processes build into {temporary}/opsmith-{os.geteuid()} instead." in ended[0][2]
    assert "CacheFallbackWarning" not in ended[1][2], "nothing had to be written"


@pytest.mark.parametrize("taken", ["a link", "a file", "open to others"])
def test_a_fallback_directory_that_is_not_the_users_own_is_not_used(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    place = temporary / f"opsmith-{os.geteuid()}"
    if taken == "a link":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    elif taken == "a file":
        place.touch()
    else:
        place.mkdir()
        place.chmod(0o777)
    monkeypatch.setenv("OPSMITH_CACHE_DIR", "/proc/self/no-such-place")
    with pytest.warns(errors.CacheFallbackWarning, match="which is removed when it ends"):
        library = build()
    assert runs(library)
    assert not library.is_relative_to(place)


def test_a_fallback_directory_of_the_process_is_private_and_removed_at_exit(
    tmp_path: Path, temporary: Path, start: Callable[..., Child]
) -> None:
    taken = temporary / f"opsmith-{os.geteuid()}"
    taken.touch()
    child = start(
        f"""
        library = toolchain.compile_shared_library("answer", text={SOURCE!r}, abi="plain")
        private = library.parents[2]
        print(oct(private.stat().st_mode & 0o777), library.exists())
        if os.fork() == 0:
            sys.exit()  # a forked child runs exit handlers too, and must not remove its parent's directory
        os.wait()
        print(library.exists(), private)
        """,
        OPSMITH_CACHE_DIR="/proc/self/no-such-place",
        TMPDIR=str(temporary),
    )
    status, output, error = child.end()
    assert status == 0, error
    assert output.split()[:3] == ["0o700", "True", "True"]
    assert "CacheFallbackWarning" in error
    assert not Path(output.split()[3]).exists()
    assert files_under(temporary) == [taken.name]


def test_a_read_only_cache_serves_what_it_holds_and_falls_back_for_the_rest(
    mount_tmpfs: Callable[[str], Path], temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = mount_tmpfs("size=1m")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(place / "cache"))
    held = build()
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build() == held
    with pytest.warns(errors.CacheFallbackWarning, match="Read-only file system"):
        other = toolchain.compile_shared_library("other", text=SOURCE, abi="plain")
    assert runs(other)
    assert other.is_relative_to(temporary)
    with pytest.raises(errors.CacheError, match="Read-only file system"):
        toolchain.clear()


def test_a_full_disk_falls_back(
    mount_tmpfs: Callable[[str], Path], temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = mount_tmpfs("size=128k")
    (place / "filler").write_bytes(b"x" * 100 * 1024)
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(place / "cache"))
    with pytest.warns(errors.CacheFallbackWarning, match=f"{place}/cache cannot be written: No space left on device"):
        library = build()
    assert runs(library)
    assert library.is_relative_to(temporary)
    assert files_under(place / "cache") == ["artifacts", "locks", "work"]


def test_a_disk_that_is_full_at_the_last_step_falls_back(
    mount_tmpfs: Callable[[str], Path], temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The artifact fits, its provenance does not: the failure is our own write and not the compiler's."""
    place = mount_tmpfs("size=64k")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(place / "cache"))
    places = []

    def fill(workdir: Path) -> None:
        places.append(workdir)
        (workdir / "a").write_bytes(b"a")
        if len(places) == 1:
            fill_up(place)

    with pytest.warns(errors.CacheFallbackWarning, match="No space left on device"):
        artifact = toolchain.obtain("0" * 64, fill, label="a", filenames=["a"])
    assert artifact.directory.is_relative_to(temporary)
    assert len(places) == 2
    assert files_under(place / "cache") == ["artifacts", "locks", "work"]


def test_where_nothing_can_be_written_the_error_names_both_places(
    mount_tmpfs: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = mount_tmpfs("size=128k")
    (place / "filler").write_bytes(b"x" * 100 * 1024)
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(place / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with pytest.warns(errors.CacheFallbackWarning), pytest.raises(errors.CacheError) as caught:
        build()
    assert str(caught.value).count("No space left on device") == 2
    assert "Set OPSMITH_CACHE_DIR" in str(caught.value)


def test_a_limit_on_file_sizes_is_a_full_disk_too(start: Callable[..., Child]) -> None:
    child = start(
        f"""
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
        try:
            toolchain.compile_shared_library("answer", text={SOURCE!r}, abi="plain")
        except toolchain.cache.CacheError as error:
            print(error)
        """
    )
    status, output, error = child.end()
    assert status == 0, error
    assert "cannot be used" in output
    assert "no temporary directory could take its place" in output


# --- other users


def test_a_directory_others_can_write_is_refused_with_the_chmod_that_fixes_it(cache_dir: Path) -> None:
    library = build()
    for mode in (0o777, 0o770, 0o702):
        cache_dir.chmod(mode)
        with pytest.raises(
            errors.CacheSecurityError, match=rf"its mode 0{mode:o} lets others(.|\n)*chmod 700 {cache_dir}"
        ):
            build()
        with pytest.raises(errors.CacheSecurityError):
            toolchain.cache_directory()
        with pytest.raises(errors.CacheSecurityError):
            toolchain.clear()
    cache_dir.chmod(0o755)  # others may read
    assert build() == library


def test_a_directory_below_one_that_everybody_can_write_is_refused_unless_sticky(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(shared / "cache"))
    shared.chmod(0o777)
    with pytest.raises(errors.CacheSecurityError, match=rf"the mode 0777 of {shared} lets every user(.|\n)*chmod o-w"):
        build()
    shared.chmod(0o1777)
    assert runs(build())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_a_directory_of_another_user_is_refused(cache_dir: Path) -> None:
    build()
    os.chown(cache_dir, 65534, 65534)
    with pytest.raises(errors.CacheSecurityError, match=r"belongs to .*uid 65534(.|\n)*OPSMITH_CACHE_DIR"):
        build()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_an_artifact_of_another_user_is_rebuilt_and_not_loaded(cache_dir: Path) -> None:
    library = build()
    os.chown(library, 65534, 65534)
    with pytest.warns(errors.CorruptCacheEntryWarning, match=r"another user can write answer\.so"):
        assert runs(build())
    assert library.stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_may_use_what_root_prepared_and_falls_back_to_write(tmp_path: Path, start: Callable[..., Child]) -> None:
    outside = Path(tempfile.mkdtemp(dir="/tmp"))  # tmp_path lies below a directory only its owner may enter
    try:
        outside.chmod(0o755)
        temporary = outside / "tmp"  # what is left in the system's own would be found by the next run of the tests
        temporary.mkdir()
        temporary.chmod(0o1777)
        code = f"""
        if os.environ["AS_USER"] == "1":
            os.setgid(65534); os.setuid(65534)
            import tempfile; tempfile.tempdir = {str(temporary)!r}
        print(toolchain.compile_shared_library("answer", text={SOURCE!r} + os.environ["MORE"], abi="plain"))
        """
        environment = {"OPSMITH_CACHE_DIR": str(outside / "cache")}
        status, prepared, error = start(code, AS_USER="0", MORE="", **environment).end()
        assert status == 0, error
        for path in (outside / "cache", *(outside / "cache").rglob("*")):
            path.chmod(0o755)
        assert start(code, AS_USER="1", MORE="", **environment).end() == (0, prepared, "")
        status, output, error = start(code, AS_USER="1", MORE="// more", **environment).end()
        assert status == 0, error
        assert output.startswith(f"{temporary}/opsmith-")
        assert "Permission denied" in error
    finally:
        shutil.rmtree(outside)
