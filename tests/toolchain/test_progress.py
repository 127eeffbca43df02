"""The progress line: silence for a second, then what is built and for how long."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from opsmith.toolchain import progress as progress_context

from .support import PRELUDE, Child

WORK = """
import time
with toolchain.progress("mylib::mish"):
    time.sleep({seconds})
"""


def test_a_short_build_prints_nothing(start: Callable[..., Child]) -> None:
    assert start(WORK.format(seconds=0.7)).end() == (0, "", "")


def test_a_long_build_prints_two_lines_without_a_terminal(start: Callable[..., Child]) -> None:
    status, output, error = start(WORK.format(seconds=1.3)).end()
    assert (status, output) == (0, "")
    first, second = error.splitlines()
    assert first == "opsmith: building mylib::mish ..."
    assert re.fullmatch(r"opsmith: mylib::mish ready after \d\.\d s", second)


def test_a_long_build_that_fails_says_so(start: Callable[..., Child]) -> None:
    _, _, error = start(WORK.format(seconds=1.2) + "    raise SystemExit(1)\n").end()
    assert re.fullmatch(r"opsmith: mylib::mish failed after \d\.\d s", error.splitlines()[-1])


def test_opsmith_quiet_silences_it(start: Callable[..., Child]) -> None:
    assert start(WORK.format(seconds=1.2), OPSMITH_QUIET="1").end() == (0, "", "")


def test_a_terminal_shows_one_line_that_counts_the_seconds() -> None:
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + "print('started', file=sys.stderr)\n" + WORK.format(seconds=2.3)],
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    words = ""
    started = first_drawn = None
    while True:
        try:
            words += os.read(master, 4096).decode()
        except OSError:  # the terminal's end of file
            break
        started = started or ("started" in words and time.monotonic()) or None
        first_drawn = first_drawn or ("building" in words and time.monotonic()) or None
    os.close(master)
    assert child.wait() == 0
    assert started
    assert first_drawn
    assert first_drawn - started > 0.9
    drawn = words.partition("started\r\n")[2]
    assert drawn.count("\n") == 1, "every redrawing stays on its line"
    seconds = re.findall(r"\r\x1b\[2Kopsmith: building mylib::mish \.\.\. (\d) s", drawn)
    assert seconds == sorted(seconds)
    assert seconds[0] == "1"
    assert "2" in seconds
    assert re.search(r"\r\x1b\[2Kopsmith: mylib::mish ready after \d\.\d s\r\n$", drawn)


def test_a_missing_or_closed_stderr_does_not_stop_a_build(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = open(os.devnull, "w")  # noqa: SIM115
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_context("a"):
            time.sleep(1.1)


def test_the_thread_that_watches_ends_with_the_build() -> None:
    with progress_context("a"):
        pass
    assert "opsmith-progress" not in {thread.name for thread in threading.enumerate()}
