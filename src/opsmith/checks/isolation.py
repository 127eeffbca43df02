"""An item in a forked process, so that a crash is reported as a failure of the item.

The child imports nothing, so ops declared in a notebook work too. A forked process cannot use CUDA; if CUDA is in use,
a new process imports the op instead (process.py).
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict

import torch

from ..kernels import NativeKernel
from ..operator import child_process
from ..operator.op import Op
from .items import CheckItem
from .report import Item
from .stacks import innermost_line
from .subject import Subject

SECONDS = 600.0


def may_crash(subject: Subject, item: CheckItem) -> bool:
    """Whether an item can crash the process: torch's compilers trust an op's fake results, and C++ kernels may contain
    any fault. Child processes of opsmith are isolated already."""
    if child_process.active():
        return False
    kernels = subject.op.kernels.get(subject.device, {}) if isinstance(subject.op, Op) else {}
    return item.crashes or any(isinstance(kernel, NativeKernel) for kernel in kernels.values())


def can_fork(subject: Subject) -> bool:
    return subject.device == "cpu" and not torch.cuda.is_initialized()


def in_fork(run: Callable[[], Item], ended: Callable[[str], Item], seconds: float = SECONDS) -> Item:
    """The item that `run` returns in a forked process; `ended` makes one from the reason for an early end."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    stack = os.memfd_create("stack")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12, if there are threads
        child = os.fork()
    if child == 0:
        os.close(reading)
        _run_and_exit(run, writing, stack)
    os.close(writing)
    try:
        text = _read(reading, seconds)
        if text is None:
            os.kill(child, signal.SIGKILL)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        place = innermost_line(os.pread(stack, 1 << 16, 0).decode(errors="replace"))
        os.close(reading)
        os.close(stack)
    if text is None:
        return ended(f"did not end within {seconds:g} s")
    with contextlib.suppress(ValueError):
        return Item(**json.loads(text))
    if status < 0:
        return ended(f"the process was ended by {signal.Signals(-status).name}{place}")
    return ended(f"the process ended early, with status {status}")


def _run_and_exit(run: Callable[[], Item], pipe: int, stack: int) -> None:
    """In the child. Leaves by os._exit, so that the parent's exit handlers do not run twice."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.enable(stack)
        torch.set_num_threads(1)  # a fork does not copy the threads of the parent's pool
        found = json.dumps(asdict(run())).encode()
        sys.stdout.flush()
        sys.stderr.flush()
        with os.fdopen(pipe, "wb") as file:
            file.write(found)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)


def _read(pipe: int, seconds: float) -> str | None:
    """Everything written to a pipe; None if its other end is still open after `seconds`."""
    until, found = time.monotonic() + seconds, b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None
        data = os.read(pipe, 1 << 16)
        if not data:
            return found.decode()
        found += data
