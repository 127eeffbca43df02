"""How commands end: a status that says what happened, also when an op ends the process or signals are ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import PACKAGES, Run, flat

OP = """
import os, signal, time
import torch, opsmith

@opsmith.op("ending::double")
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@double.register_samples
def _(device, dtype):
    yield opsmith.Sample((torch.ones(64, dtype=dtype, device=device),))

@double.register_kernel("cpu")
def _(x):
    {body}
    return x * 2
"""


def op(folder: Path, body: str) -> str:
    file = folder / "ending.py"
    file.write_text(OP.format(body=body))
    return str(file)


def test_a_check_in_which_nothing_passed_fails(run: Run, tmp_path: Path) -> None:
    done = run("check", op(tmp_path, "pass"), "--emulate", "--item", "values")
    assert "0 passed, 0 failed, 1 skipped" in done.stdout
    assert "ending::double is not ok: nothing was checked" in flat(done.stdout)
    assert done.returncode == 1


def test_a_check_of_a_kernel_that_ends_the_process_fails(run: Run, tmp_path: Path) -> None:
    done = run("check", op(tmp_path, "os._exit(0)"), "--item", "values")
    assert "the process ended with status 0" in done.stdout
    assert done.returncode == 1


BENCH = ("--against", "eager", "--direction", "forward")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("os._exit(0)", 1, "the process ended early, with status 0, before the results were complete"),
        ("os._exit(7)", 7, ""),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 128 + signal.SIGSEGV, "the process was ended by SIGSEGV"),
    ],
    ids=["exit 0", "exit 7", "crash"],
)
def test_a_benchmark_whose_process_ends_early_fails(
    run: Run, tmp_path: Path, body: str, status: int, words: str
) -> None:
    done = run("bench", op(tmp_path, body), *BENCH)
    assert done.returncode == status, done.stderr
    assert words in flat(done.stderr)


@pytest.mark.long
def test_a_benchmark_that_comes_to_its_end_succeeds(run: Run, tmp_path: Path) -> None:
    done = run("bench", op(tmp_path, "pass"), *BENCH)
    assert done.returncode == 0, done.stderr
    assert "ending::double" in done.stdout
    assert run("bench", "no_such_op").returncode == 2


@pytest.mark.parametrize("verb", [["check", "--item", "values"], ["bench", *BENCH]], ids=["check", "bench"])
def test_a_command_that_ignores_ctrl_c_ends_on_sigterm(tmp_path: Path, verb: list[str]) -> None:
    """As it does when a shell has started it in the background."""
    begun = tmp_path / "begun"
    file = op(tmp_path, f"open({str(begun)!r}, 'w').close(); time.sleep(60)")
    process = subprocess.Popen(
        [sys.executable, "-m", "opsmith.cli", verb[0], file, *verb[1:]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PACKAGES), "OPSMITH_RUNTIME": "python"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None,
    )
    deadline = time.monotonic() + 60
    while not begun.exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None, "it ignores this signal"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) != 0


def test_ctrl_c_ends_a_benchmark(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    file = op(tmp_path, f"open({str(begun)!r}, 'w').close(); time.sleep(60)")
    process = subprocess.Popen(
        [sys.executable, "-m", "opsmith.cli", "bench", file, *BENCH],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PACKAGES), "OPSMITH_RUNTIME": "python"},
    )
    deadline = time.monotonic() + 60
    while not begun.exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
