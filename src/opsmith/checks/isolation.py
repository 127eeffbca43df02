"""An item in a forked process, so that a crash is reported as a failure of the item.

The child imports nothing, so ops declared in a notebook work too. A forked process cannot use CUDA; if CUDA is in use,
a new process imports the op instead (reproduction.py).
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, TypeVar

import torch

from ..kernels import NativeKernel
from ..operator import child_process
from ..operator.op import Op
from .report import Item
from .stacks import innermost_line
from .subject import Subject

if TYPE_CHECKING:
    from .items import CheckItem

SECONDS = 600.0
Result = TypeVar("Result")


def may_crash(subject: Subject, item: CheckItem) -> bool:
    """Whether an item can crash the process: torch's compilers trust an op's fake results, and C++ kernels may contain
    any fault. Child processes of opsmith are isolated already."""
    if child_process.active():
        return False
    kernels = subject.op.kernels.get(subject.device, {}) if isinstance(subject.op, Op) else {}
    return item.crashes or any(isinstance(kernel, NativeKernel) for kernel in kernels.values())


def in_fork(run: Callable[[], Item], ended: Callable[[str], Item], seconds: float = SECONDS) -> Item:
    """The item that `run` returns in a forked process; `ended` makes one from the reason for an early end."""
    found, status, stack = forked(run, seconds)
    if found is not None:
        return found
    if status is None:
        return ended(f"did not end within {seconds:g} s")
    if status < 0:
        return ended(f"the process was ended by {signal.Signals(-status).name}{innermost_line(stack)}")
    return ended(f"the process ended early, with status {status}")


def forked(function: Callable[[], Result], seconds: float) -> tuple[Result | None, int | None, str]:
    """What a function returns in a forked process with one thread; its exit status, 1 if it raises, None if it was
    killed after `seconds`; and the stack at a crash."""
    sys.stdout.flush()
    sys.stderr.flush()
    receiving, sending = multiprocessing.Pipe(duplex=False)
    stack = os.memfd_create("stack")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12, if there are threads
        child = os.fork()
    if child == 0:
        _run_and_exit(function, sending, stack)
    sending.close()
    found: Result | None = None
    in_time = True
    try:
        in_time = receiving.poll(seconds)
        if in_time:
            found = receiving.recv()
        else:
            os.kill(child, signal.SIGKILL)
    except (EOFError, OSError):
        pass  # it ended early
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        written = os.pread(stack, 1 << 16, 0).decode(errors="replace")
        receiving.close()
        os.close(stack)
    return found, status if in_time else None, written


def _run_and_exit(function: Callable[[], Result], sending: Connection[Result, Result], stack: int) -> None:
    """In the child. Leaves by os._exit, so that the parent's exit handlers do not run twice."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.enable(stack)
        gc.freeze()  # collecting the parent's objects would copy the memory that they are in
        torch.set_num_threads(1)  # a fork does not copy the threads of the parent's pool
        found = function()
        sys.stdout.flush()
        sys.stderr.flush()
        sending.send(found)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)
