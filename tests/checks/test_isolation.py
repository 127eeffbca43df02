"""Items that can crash run in a child process, after those that explain the crash."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import opsmith
from opsmith import Op, Sample
from opsmith.checks.isolation import in_fork
from opsmith.checks.items import every_item
from opsmith.checks.report import Item
from opsmith.checks.reproduction import in_new_process
from opsmith.checks.subject import Subject

Fresh = Callable[[str], str]


def doubled(name: str) -> Op:
    @opsmith.op(name)
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_samples(lambda device, dtype: iter([Sample((torch.randn(64, 48, dtype=dtype),))]))
    return double


def wrong_dtype(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, dtype=torch.float64)


def wrong_strides(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[::-1]).t() if x.dim() == 2 else torch.empty_like(x)


@pytest.mark.parametrize("fake", [wrong_dtype, wrong_strides])
def test_a_wrong_fake_is_reported_and_the_process_continues(fresh: Fresh, fake: Callable[..., torch.Tensor]) -> None:
    """inductor trusts it, and compiles code that writes where it must not."""
    op = doubled(fresh("lies"))
    op.register_fake(fake)
    report = opsmith.check(op, level="full", items=["fake", "compile"])
    assert [item.name for item in report.failures] == ["fake", "compile"]
    assert "on fake tensors, but" in report.failures[0].message
    assert report.failures[1].reproduction


def test_items_that_explain_a_crash_run_before_it() -> None:
    names = [item.name for item in every_item()]
    crashing = [item.name for item in every_item() if item.crashes]
    assert "compile" in crashing
    for name in crashing:
        assert names.index(name) > max(names.index("fake"), names.index("dtypes"), names.index("values"))


def test_a_crash_of_a_cpp_kernel_does_not_end_the_check(fresh: Fresh, tmp_path: Path) -> None:
    source = tmp_path / "crash.cpp"
    source.write_text("""
        #include <opsmith/kernel.h>
        namespace { opsmith::Tensor crashing(opsmith::Tensor x) {
            *reinterpret_cast<volatile int*>(8) = 1;
            return x;
        } }
        OPSMITH_EXPORT(crash, crashing)
    """)
    op = doubled(fresh("crashes"))
    op.register_kernel("cpu", opsmith.extension("crashing_in_a_test", sources=[source]).crash)
    report = opsmith.check(op, items=["values", "sizes"])
    assert [item.name for item in report.failures] == ["values", "sizes"]
    assert "the process was ended by SIGSEGV" in report.failures[0].message


def item() -> Item:
    return Item("one", "passed", "found here")


def ended(words: str) -> Item:
    return Item("one", "failed", words)


def test_the_item_of_a_child_process_is_returned() -> None:
    assert in_fork(item, ended) == item()


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "the process was ended by SIGSEGV"),
        (lambda: os._exit(0), "the process ended early, with status 0"),
        (lambda: os._exit(3), "the process ended early, with status 3"),
    ],
    ids=["crash", "exit 0", "exit 3"],
)
def test_a_child_that_ends_early_is_a_failure(end: Callable[[], None], words: str) -> None:
    def run() -> Item:
        end()
        return item()

    found = in_fork(run, ended)
    assert found.status == "failed" and found.message.startswith(words)


def test_a_child_that_hangs_is_killed() -> None:
    def run() -> Item:
        signal.pause()
        return item()

    assert in_fork(run, ended, seconds=0.5).message == "did not end within 0.5 s"


def test_ctrl_c_ends_the_new_process_of_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a session of its own, so the terminal does not end it."""
    started: list[subprocess.Popen[str]] = []

    class Interrupted(subprocess.Popen[str]):
        def communicate(self, *arguments: Any, **keywords: Any) -> Any:
            if self not in started:
                started.append(self)
                raise KeyboardInterrupt
            return super().communicate(*arguments, **keywords)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_new_process(Subject(opsmith.ops.square), ["import time; time.sleep(60)"])
    assert started[0].wait(timeout=5) == -signal.SIGKILL
