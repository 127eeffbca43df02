"""Looking whether a reference draws random numbers harms nobody, also from several threads at once."""

from __future__ import annotations

import fresh_process

THREADS = """
import gc, threading, torch
from opsmith.reference.purity import RandomState

gc.set_threshold(20)

def look():
    for _ in range(2000):
        cycle = [torch.ones(1)]
        cycle.append(cycle)  # the collector is to find tensors while the state of the generator is made one
        assert not RandomState([]).has_changed()

threads = [threading.Thread(target=look, daemon=True) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join(40) for thread in threads]
print("waiting" if any(thread.is_alive() for thread in threads) else "done", flush=True)
import os; os._exit(0)
"""


def test_threads_that_look_at_once_do_not_wait_for_ever() -> None:
    outcome = fresh_process.run(["-c", THREADS], timeout=60)
    assert outcome.stdout == "done\n", outcome.stderr
