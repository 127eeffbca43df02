"""Run several builds at once in threads, and end all of them when the wait is interrupted."""

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

    When a task fails, running tasks finish (their results are cached) and no other is started; the first failure is
    raised. When the wait itself is interrupted, running tools are killed first.
    """
    if len(tasks) == 1 or jobs == 1:
        return [task() for task in tasks]
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    waiting = iter(range(len(tasks)))
    # Daemon threads that report to a queue: the interpreter would wait for those of a thread pool when it exits.
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
    """Wait in short steps: a signal that arrives at the wrong moment, or in another thread, does not interrupt a wait,
    but is handled between two. (With one long wait, one Ctrl-C in thirty waited for the compilers to end.)"""
    while True:
        with contextlib.suppress(queue.Empty):
            return done.get(timeout=0.1)
