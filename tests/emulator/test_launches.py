"""Launches and the process they are made in: its threads, its forks, its signals, its end."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import opsmith
from opsmith.errors import KernelFault

from .test_speed import on_cores, two_cores

PATH = Path(__file__).parent / "runtime.cu"
SOURCE = opsmith.cuda_source(PATH)

checked_or_not = pytest.mark.parametrize("checks", [False, True], ids=["without checks", "with checks"])


def numbered(checks: bool, blocks: int = 4, seed: int = 0) -> None:
    """A launch whose result is known."""
    block, thread = (torch.zeros(blocks * 64, dtype=torch.int32) for _ in range(2))
    with opsmith.emulate(checks=checks, seed=seed):
        SOURCE.numbers_itself[blocks, 64](block, thread)
    assert torch.equal(block, torch.arange(blocks, dtype=torch.int32).repeat_interleave(64))
    assert torch.equal(thread, torch.arange(64, dtype=torch.int32).repeat(blocks))


@contextmanager
def launch_under_way() -> Iterator[threading.Thread]:
    """Inside, another thread has a launch running."""
    has_begun, may_go = (torch.zeros(1, dtype=torch.int32) for _ in range(2))

    def launch() -> None:
        with opsmith.emulate(checks=False):
            SOURCE.waits_to_be_let_go[2, 32](has_begun, may_go)

    launching = threading.Thread(target=launch, daemon=True)
    launching.start()
    while not has_begun.item():
        time.sleep(0.01)
    yield launching
    may_go.fill_(1)
    launching.join()


def threads() -> int:
    """Of this process."""
    return len(os.listdir("/proc/self/task"))


# --- Processes --------------------------------------------------------------------------------------------------------

SERVER = """
import os, signal, sys, threading, time
import ctypes, faulthandler, traceback
from emulator.test_launches import *

signal.signal(signal.SIGINT, signal.default_int_handler)
for name in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child == 0:
        name = name.strip()
        for number, suffix in ((0, None), (1, ".out"), (2, ".err")):
            path, flags = (name + suffix, os.O_WRONLY | os.O_CREAT) if suffix else (os.devnull, os.O_RDONLY)
            os.dup2(os.open(path, flags, 0o600), number)
        text = open(name).read()
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    text = ""
exec(text)
"""


class Ended(NamedTuple):
    """How a process has ended, and its output."""

    returncode: int
    stdout: str
    stderr: str


class Script:
    """Runs texts, each in a new process that has not launched anything. They are forks of one that has imported torch
    and this module: importing them takes longer than most of these tests."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._serial = directory, itertools.count()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PATH.parents[1]), *filter(None, sys.path)])}
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __call__(self, text: str, exits: bool = False) -> Ended:
        """`exits` is for what happens when the interpreter exits, which takes a second with torch."""
        assert self._server.stdin is not None and self._server.stdout is not None
        path = self._directory / f"script{next(self._serial)}"
        path.write_text(textwrap.dedent(text) + ("" if exits else "\nsys.stdout.flush(); os._exit(0)\n"))
        self._server.stdin.write(f"{path}\n")
        self._server.stdin.flush()
        assert select.select([self._server.stdout], [], [], 300)[0], "the script has not ended within 300 s"
        status = int(self._server.stdout.readline())
        return Ended(status, *(path.with_suffix(suffix).read_text() for suffix in (".out", ".err")))

    def end(self) -> None:
        self._server.kill()
        self._server.communicate()


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Script]:
    scripts = Script(tmp_path_factory.mktemp("scripts"))
    yield scripts
    scripts.end()


# --- Threads of the machine -----------------------------------------------------------------------------------------


def test_launches_share_their_threads_which_end_when_there_are_no_more(script: Script) -> None:
    ended = script("""
        numbered(False), numbered(True)
        time.sleep(4)
        before = threads()
        most = 0
        for i in range(300):
            numbered(checks=i % 10 == 0, blocks=1 + i % 8)
            most = max(most, threads() - before)
        assert 1 <= most <= len(os.sched_getaffinity(0)), most
        time.sleep(4)
        assert threads() == before, (threads(), before)
    """)
    assert ended.returncode == 0, ended.stderr


def test_the_memory_of_large_stacks_is_freed_while_launches_continue(script: Script) -> None:
    ended = script("""
        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20  # MiB

        numbered(False)
        before = resident()
        with opsmith.emulate(checks=False):
            SOURCE.has_a_large_array[1, 512](torch.zeros(512, dtype=torch.int32))
        taken = resident() - before
        start = time.monotonic()
        while resident() - before > 64 and time.monotonic() - start < 20:
            numbered(False)
        assert taken > 200 and resident() - before <= 64, (taken, resident() - before)
    """)
    assert ended.returncode == 0, ended.stderr


def test_there_are_none_before_the_first_launch(script: Script) -> None:
    ended = script("""
        from opsmith.emulator import library
        before = threads()
        library.runtime()
        assert threads() == before
    """)
    assert ended.returncode == 0, ended.stderr


def test_threads_of_python_may_launch_at_the_same_time() -> None:
    errors = []

    def launches(first: int) -> None:
        try:
            for i in range(40):
                numbered(checks=(first + i) % 2 == 0, blocks=1 + (first + i) % 5, seed=i)
                if i % 8 == first:
                    with opsmith.emulate(checks=False), pytest.raises(KernelFault, match="no such bin"):
                        SOURCE.throws[2, 64](torch.zeros(1, dtype=torch.int32))
        except BaseException as error:
            errors.append(error)

    launching = [threading.Thread(target=launches, args=(first,)) for first in range(4)]
    for thread in launching:
        thread.start()
    for thread in launching:
        thread.join()
    assert not errors


def test_a_launch_that_takes_long_holds_up_no_other() -> None:
    with launch_under_way() as launching:
        for _ in range(10):
            numbered(checks=False)
        assert launching.is_alive()


def test_two_sources_of_one_text_have_constants_of_their_own_also_at_the_same_time() -> None:
    text = "__constant__ int c = 0;\n__global__ void put(int* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = c; }\n"
    wrong = []

    def launches(value: int) -> None:
        source = opsmith.cuda_source(text)
        with opsmith.emulate(checks=False):
            source.set_constant("c", value)
            for _ in range(100):
                x = torch.zeros(64 * 64, dtype=torch.int32)
                source.put[64, 64](x)
                wrong.extend(x[x != value].tolist())

    launching = [threading.Thread(target=launches, args=(value,)) for value in (1, 2, 3)]
    for thread in launching:
        thread.start()
    for thread in launching:
        thread.join()
    assert not wrong


@two_cores
@checked_or_not
def test_blocks_run_on_the_cores_of_the_thread_that_launches(checks: bool) -> None:
    for core in sorted(os.sched_getaffinity(0)) * 2:
        all_cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        try:
            ran_on = torch.zeros(16, dtype=torch.int32)
            with opsmith.emulate(checks=checks):
                SOURCE.tells_its_core[16, 1](ran_on)
        finally:
            os.sched_setaffinity(0, all_cores)
        assert (ran_on == core).all()


@checked_or_not
def test_dynamic_shared_memory_declared_for_the_file_is_the_launchs_own(checks: bool) -> None:
    """Its address is kept in a variable of the machine's thread, which launches of all sizes share."""
    with opsmith.emulate(checks=checks), on_cores(1):
        for size in (32, 1024, 64, 512):
            x = torch.arange(size, dtype=torch.int32)
            SOURCE.turns_around[1, size, size * 4](x)
            assert torch.equal(x, torch.arange(size, dtype=torch.int32).flip(0))


def test_kernels_know_denormal_numbers_whatever_the_launching_thread_does(script: Script) -> None:
    ended = script("""
        torch.set_flush_denormal(True)
        x, y = torch.full((1,), 2.0**-126), torch.zeros(1)
        with opsmith.emulate(checks=False):
            SOURCE.halves[1, 1](x, y)
        torch.set_flush_denormal(False)
        assert y.item() == 2.0**-127, y
    """)
    assert ended.returncode == 0, ended.stderr


# --- Fork and exit --------------------------------------------------------------------------------------------------


@checked_or_not
def test_a_forked_child_launches_as_its_parent_does(script: Script, checks: bool) -> None:
    ended = script(f"""
        numbered({checks})
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            numbered({checks}), numbered({not checks})
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        numbered({checks})
    """)
    assert ended.returncode == 0, ended.stderr


def test_so_does_one_forked_during_a_launch_of_another_thread(script: Script) -> None:
    ended = script("""
        numbered(False), numbered(True)
        with launch_under_way() as launching:
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    signal.alarm(60)
                    numbered(False), numbered(True)
                    os._exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGILL)  # the child has its own handlers again, which is none
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGILL
            assert launching.is_alive()
        numbered(False)
    """)
    assert ended.returncode == 0, ended.stderr


def test_the_last_launch_may_be_at_exit(script: Script) -> None:
    ended = script(
        """
        import atexit
        atexit.register(lambda: (numbered(False), numbered(True), print("launched")))
        numbered(False)
    """,
        exits=True,
    )
    assert ended.returncode == 0 and ended.stdout == "launched\n", ended.stderr


def test_a_process_ends_though_a_kernel_has_not(script: Script) -> None:
    ended = script(
        """
        under_way = launch_under_way()
        under_way.__enter__()
        print("the end")
    """,
        exits=True,
    )
    assert ended.returncode == 0 and ended.stdout == "the end\n", ended.stderr


# --- Signals --------------------------------------------------------------------------------------------------------


@checked_or_not
def test_ctrl_c_ends_a_launch(checks: bool) -> None:
    with pytest.raises(KernelFault, match="hang"), opsmith.emulate(checks=checks, timeout=0.01):
        SOURCE.spins[2, 32](torch.zeros(1, dtype=torch.int32))
    pressed = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    pressed.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), opsmith.emulate(checks=checks):
        SOURCE.spins[2, 32](torch.zeros(1, dtype=torch.int32))
    pressed.join()
    assert 0.2 < time.monotonic() - start < 10
    numbered(checks)


def test_signals_of_a_kernel_are_its_own_and_others_go_where_they_went(script: Script) -> None:
    """Python's faulthandler tells of the process's own end, after launches and during one."""
    for meanwhile in ("contextlib.nullcontext()", "launch_under_way()"):
        ended = script(f"""
            import contextlib, ctypes, faulthandler
            faulthandler.enable()
            for checks in (False, True):
                with opsmith.emulate(checks=checks), pytest.raises(KernelFault):
                    SOURCE.writes_to[1, 32](torch.zeros(1, dtype=torch.int32), None)
            with {meanwhile}:
                print("still here", flush=True)
                ctypes.string_at(0)
        """)
        assert ended.stdout == "still here\n"
        assert ended.returncode == -signal.SIGSEGV
        assert "Fatal Python error: Segmentation fault" in ended.stderr and "string_at" in ended.stderr


def test_a_handler_of_python_is_called_during_a_launch_and_after_it(script: Script) -> None:
    ended = script("""
        came = []
        signal.signal(signal.SIGFPE, lambda *_: came.append("FPE"))
        with launch_under_way():
            os.kill(os.getpid(), signal.SIGFPE)
            time.sleep(0.1)
            assert came == ["FPE"]
        os.kill(os.getpid(), signal.SIGFPE)
        time.sleep(0.1)
        assert came == ["FPE", "FPE"]
        with opsmith.emulate(checks=False), pytest.raises(KernelFault, match="divided by zero"):
            SOURCE.divides_by[1, 32](torch.zeros(32, dtype=torch.int32), 0)
        assert came == ["FPE", "FPE"]
    """)
    assert ended.returncode == 0, ended.stderr


def test_a_handler_installed_during_a_launch_stays(script: Script) -> None:
    ended = script("""
        import ctypes, faulthandler
        with launch_under_way():
            faulthandler.enable()
        ctypes.string_at(0)
    """)
    assert ended.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in ended.stderr
