"""Run several builds at once, a thread each, and end all of them when the wait is interrupted."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from .process import Batch, Cancelled

Result = TypeVar("Result")


def run_together(tasks: Sequence[Callable[[], Result]], jobs: int) -> list[Result]:
    """The tasks' results, in order; at most ``jobs`` of them run at a time.

    When a task fails, those that run come to their end (what they build is kept) and no other is started; the first
    failure is raised. When the wait itself is interrupted, the tools that run are killed first.
    """
    if len(tasks) == 1 or jobs == 1:
        return [task() for task in tasks]
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    waiting = iter(range(len(tasks)))
    # Threads end as daemons and tell by a queue: a thread pool would be waited for when the interpreter exits.
    done: queue.SimpleQueue[None] = queue.SimpleQueue()
    lock = threading.Lock()
    batch = Batch()

    def work() -> None:
        try:
            with batch.joined():
                while True:
                    with lock:
                        number = None if failures or batch.cancelled else next(waiting, None)
                    if number is None:
                        return
                    results[number] = tasks[number]()
        except Cancelled:
            pass
        except BaseException as failure:
            failures.append(failure)
        finally:
            done.put(None)

    threads = [threading.Thread(target=work, name="opsmith-build", daemon=True) for _ in range(min(jobs, len(tasks)))]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            _wait(done)
    except BaseException:
        batch.cancel()
        for thread in threads:
            thread.join()
        raise
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(tasks))]


def _wait(done: queue.SimpleQueue[None]) -> None:
    """In short waits: a signal that comes in the wrong instant, or to another thread, interrupts none of them, and is
    seen between two. (One Ctrl-C in thirty waited for the compilers to end.)"""
    while True:
        with contextlib.suppress(queue.Empty):
            return done.get(timeout=0.1)
