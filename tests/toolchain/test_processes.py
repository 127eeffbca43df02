"""The cache between processes: one build for all, killed at any moment, interrupted, cleared while building."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import opsmith.toolchain as toolchain
from opsmith.toolchain.lock import KeyLock

from .support import Child, files_under, wait_until

# Children forked here touch files and nothing that torch's threads might hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

SOURCE = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }'
BUILD = f"print(toolchain.compile_shared_library('answer', text={SOURCE!r}, abi='plain'), flush=True)"


def build() -> Path:
    return toolchain.compile_shared_library("answer", text=SOURCE, abi="plain")


def test_five_processes_build_once(
    tmp_path: Path, use_compiler: Callable[[str], Path], start: Callable[..., Child]
) -> None:
    log = tmp_path / "compilations"
    use_compiler(f'version "$1"\necho "$$" >> {log}\nsleep 0.5\nreal "$@"\n')
    # All five wait for the flag, so that none of them finds the others' work already done.
    children = [start(f"while not Path({str(tmp_path / 'go')!r}).exists(): pass\n{BUILD}") for _ in range(5)]
    (tmp_path / "go").touch()
    outcomes = [child.end() for child in children]
    assert [status for status, _, _ in outcomes] == [0] * 5, outcomes
    assert len({output for _, output, _ in outcomes}) == 1
    assert len(log.read_text().splitlines()) == 1


def test_a_process_that_waits_names_the_builder(
    tmp_path: Path, use_compiler: Callable[[str], Path], start: Callable[..., Child]
) -> None:
    use_compiler(f'version "$1"\ntouch {tmp_path}/building\nwait_for {tmp_path}/waiting\nreal "$@"\n')
    builder = start(BUILD)
    wait_until((tmp_path / "building").exists, "the first process builds")
    waiter = start(BUILD)
    assert waiter.process.stderr
    line = waiter.process.stderr.readline()
    assert line == f"opsmith: waiting for process {builder.process.pid} to build answer ...\n"
    (tmp_path / "waiting").touch()
    status, output, _ = waiter.end()
    assert (status, output) == (0, builder.end()[1])


def test_a_build_killed_at_any_step_is_not_loaded_and_blocks_nothing(cache_dir: Path) -> None:
    """A builder is killed at its first step, the next one at its second, and so on, until one lives to the end.

    The steps are Python's audit events: every file opened, renamed, removed, every directory made.
    """
    key = "0" * 64

    def write(workdir: Path) -> None:
        (workdir / "a").write_bytes(b"whole")

    steps = 0
    for step in itertools.count():
        if _killed_at(step, lambda: toolchain.obtain(key, write, label="a", filenames=["a"])):
            steps += 1
        artifact = toolchain.obtain(key, write, label="a", filenames=["a"])
        assert artifact.path("a").read_bytes() == b"whole"
        litter = [name for name in files_under(cache_dir) if not name.startswith("artifacts")]
        # A builder killed after publishing may leave its lock file behind, which locks nothing.
        assert litter in (["locks", "work"], ["locks", f"locks/{key}", "work"])
        if step == steps:
            break
        toolchain.clear()
        assert files_under(cache_dir) == ["artifacts", "locks", "work"]
    assert steps > 20


def _killed_at(step: int, function: Callable[[], object]) -> bool:
    """Run ``function`` in a forked process that SIGKILLs itself at the given audit event; whether it came to that."""
    pid = os.fork()
    if pid == 0:
        events = itertools.count()

        def count(event: str, _: object) -> None:
            if event.partition(".")[0] in ("open", "os", "shutil", "tempfile", "fcntl") and next(events) == step:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(count)
            function()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_builders_killed_while_the_compiler_runs_leave_no_litter_that_grows(
    tmp_path: Path, cache_dir: Path, use_compiler: Callable[[str], Path], start: Callable[..., Child]
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    use_compiler(
        f"""
        version "$1"
        echo "$$" > {tmp_path}/compiling
        sleep 0.1; echo half > "$TMPDIR/half.s"
        sleep 0.1; echo half > answer.so
        sleep 0.1; real "$@"
        sleep 0.3
        """
    )
    left = []
    for moment in range(8):
        (tmp_path / "compiling").unlink(missing_ok=True)
        child = start(BUILD, TMPDIR=str(temporary))
        wait_until((tmp_path / "compiling").exists, "the compiler has started")
        time.sleep(moment * 0.06)
        child.kill()
        assert child.process.returncode == -signal.SIGKILL
        assert not list((cache_dir / "artifacts").iterdir())
        left.append(len(list((cache_dir / "work").iterdir())))
    assert left == [1] * 8  # each swept its predecessor's, though its compiler may still have been writing there
    library = build()
    assert toolchain.load_library(library).answer() == 42
    assert files_under(cache_dir / "work") == files_under(cache_dir / "locks") == files_under(temporary) == []


def test_what_killed_builders_of_other_keys_left_is_swept_too(cache_dir: Path) -> None:
    for name in ("artifacts", "locks", "work"):
        (cache_dir / name).mkdir(parents=True, mode=0o700)
    cache_dir.chmod(0o700)
    alive, dead = "a" * 64, "d" * 64
    for key in (alive, dead):
        (cache_dir / "work" / f"{key}.12345678").mkdir()
        (cache_dir / "work" / f"{key}.12345678" / "half.so").touch()
        (cache_dir / "locks" / key).touch()
    lock = KeyLock(cache_dir / "locks" / alive)
    assert lock.try_acquire()
    build()
    assert files_under(cache_dir / "work") == [f"{alive}.12345678", f"{alive}.12345678/half.so"]
    assert files_under(cache_dir / "locks") == [alive]
    lock.release()


def test_an_interrupt_ends_the_compiler_and_leaves_nothing(
    tmp_path: Path, cache_dir: Path, use_compiler: Callable[[str], Path], start: Callable[..., Child]
) -> None:
    use_compiler(
        f'version "$1"\nsleep 60 & echo "$$ $!" > {tmp_path}/pids.new\nmv {tmp_path}/pids.new {tmp_path}/pids\nwait\n'
    )
    child = start(BUILD)
    wait_until((tmp_path / "pids").exists, "the compiler has started")
    compiler, grandchild = map(int, (tmp_path / "pids").read_text().split())
    child.process.send_signal(signal.SIGINT)
    status, _, error = child.end(timeout=10)
    assert status != 0
    assert "KeyboardInterrupt" in error
    wait_until(lambda: not _alive(compiler) and not _alive(grandchild), "the compiler is gone")
    assert files_under(cache_dir) == ["artifacts", "locks", "work"]
    use_compiler('version "$1"\nreal "$@"\n')
    assert toolchain.load_library(build()).answer() == 42


def test_a_background_build_does_not_outlive_the_interpreter(
    tmp_path: Path, use_compiler: Callable[[str], Path], start: Callable[..., Child]
) -> None:
    use_compiler(f'version "$1"\necho "$$" > {tmp_path}/pid.new\nmv {tmp_path}/pid.new {tmp_path}/pid\nexec sleep 60\n')
    child = start(
        f"""
        import threading, time
        def background(): {BUILD}
        threading.Thread(target=background, daemon=True).start()
        while not Path({str(tmp_path / "pid")!r}).exists(): time.sleep(0.01)
        """
    )
    status, _, error = child.end(timeout=20)
    assert status == 0, error
    wait_until(lambda: not _alive(int((tmp_path / "pid").read_text())), "the compiler is gone")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_clear_keeps_what_another_process_is_building(
    tmp_path: Path, cache_dir: Path, use_compiler: Callable[[str], Path], start: Callable[..., Child]
) -> None:
    toolchain.compile_shared_library("finished", text=SOURCE, abi="plain")
    use_compiler(
        f"""
        version "$1"
        touch {tmp_path}/building
        wait_for {tmp_path}/cleared
        real "$@"
        """
    )
    child = start(BUILD)
    wait_until((tmp_path / "building").exists, "the other process builds")
    assert toolchain.clear().entries == 1
    assert len(list((cache_dir / "work").iterdir())) == 1
    (tmp_path / "cleared").touch()
    status, output, error = child.end()
    assert status == 0, error
    assert toolchain.load_library(Path(output.strip())).answer() == 42
    assert toolchain.usage().entries == 1


def test_a_lock_is_held_by_one_process_at_a_time_although_its_file_comes_and_goes(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    pids = []
    for _ in range(4):
        if (pid := os.fork()) == 0:
            try:
                for _ in range(100):
                    lock = KeyLock(tmp_path / "lock")
                    while not lock.try_acquire():
                        pass
                    value = int(counter.read_text())
                    counter.write_text(str(value + 1))
                    lock.release()
                os._exit(0)
            finally:
                os._exit(1)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
    assert counter.read_text() == "400"
    assert not (tmp_path / "lock").exists()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", fail)  # with the file gone, nobody would ask for this lock
    lock = KeyLock(tmp_path / "lock")
    assert lock.try_acquire()
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(writer)
        os.read(reader, 1)  # until the test is over
        os._exit(0)
    try:
        lock.release()
        assert KeyLock(tmp_path / "lock").try_acquire()
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("contents", ["", "garbage", "[]", '{"pid": 1}'])
def test_a_lock_that_does_not_name_its_holder_is_still_a_lock(contents: str, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(contents)
    assert KeyLock(tmp_path / "lock").holder() == "another process"
