"""torch.compile without a pool of processes: by default it starts one for each core to compile in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def compiling_here() -> Iterator[None]:
    """Inside, inductor compiles in this process. What it compiles is the same."""
    import torch._inductor.config as config

    with config.patch(compile_threads=1):
        yield
