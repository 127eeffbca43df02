"""The limits of the machine, measured in the same run as the ops: read, write and copy bandwidth, and matmul rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from ..operator.samples import Cost
from . import gpu
from .timing import CallSampler, measured

TOLERANCE = 1.05  # a speed this far above the ceiling is an error: something was not computed, or not timed
_THREADS = 256
_MOVES = ("read", "write", "copy")
_PLACES = 4
"""Memory locations to measure; the fastest counts. They differ by up to 7 %, and a ceiling must be an upper bound."""


@dataclass(frozen=True)
class Ceilings:
    """Bytes per second; `matmul` is operations per second by dtype."""

    read: float
    write: float
    copy: float
    matmul: dict[str, float]

    @property
    def fastest(self) -> float:
        return max(self.read, self.write, self.copy)

    def seconds(self, cost: Cost, dtype: str) -> tuple[float, str]:
        """The least time for a cost, and what limits it: "memory" (copy bandwidth) or "compute"."""
        memory = cost.bytes / self.copy
        rate = self.matmul.get(dtype) or max(self.matmul.values(), default=float("inf"))
        compute = cost.flops / rate
        return (compute, "compute") if compute > memory else (memory, "memory")

    def share(self, row: dict[str, Any]) -> dict[str, Any]:
        """The columns "share" and "limit" of a row that has bytes and flops."""
        if not (row.get("bytes") or row.get("flops")) or not row["us"] > 0:
            return {}
        least, limit = self.seconds(Cost(row["bytes"], row["flops"]), row["dtype"])
        return {"share": round(least * 1e6 / row["us"], 4), "limit": limit}


def measure(device: torch.device | str, size: int | None = None, matrix: int | None = None) -> Ceilings:
    """`size`: bytes of the tensors, far beyond every cache. `matrix`: the side of the matrices."""
    if torch.device(device).type == "cuda":
        return _of_gpu(size or 1 << 30, matrix or 8192)
    return _of_cpu(size or 1 << 28, matrix or 1024)


def _of_gpu(size: int, side: int) -> Ceilings:
    from ..kernels.cuda_source import cuda_source

    kernels = cuda_source(Path(__file__).with_name("ceilings.cu"))
    size = min(size, torch.cuda.mem_get_info()[0] // (4 * (_PLACES + 1)) // 16 * 16)
    vectors = size // 16
    blocks = -(-vectors // (4 * _THREADS))
    calls: dict[str, Callable[[], Any]] = {}
    tensors = [torch.zeros(size // 4, dtype=torch.uint32, device="cuda") for _ in range(_PLACES + 1)]
    for place, (first, second) in enumerate(pairwise(tensors)):
        calls |= {
            f"copy {place}": partial(kernels.copy[blocks, _THREADS], first, second, vectors),
            f"write {place}": partial(kernels.fill[blocks, _THREADS], second, vectors, 1),
            f"read {place}": partial(kernels.read[blocks, _THREADS], first, second, vectors),
        }
    matrices = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        a, b = (torch.randn(side, side, device="cuda", dtype=dtype) for _ in range(2))
        matrices[str(dtype).removeprefix("torch.")] = lambda a=a, b=b: a @ b
    taken = measured({name: gpu.GraphSampler([call], gpu.Places(1)) for name, call in (calls | matrices).items()})
    least = {what: min(taken[f"{what} {place}"].median for place in range(_PLACES)) for what in _MOVES}
    return _ceilings(size, least, {name: 2 * side**3 / taken[name].median for name in matrices})


def _of_cpu(size: int, side: int) -> Ceilings:
    first, second = (torch.zeros(size // 4) for _ in range(2))
    matrices, sides = {}, {}
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        sides[name] = side if dtype.itemsize > 2 else side // 2  # which many a CPU computes by converting
        a, b = (torch.randn(sides[name], sides[name], dtype=dtype) for _ in range(2))
        matrices[name] = lambda a=a, b=b: a @ b
    calls: dict[str, Callable[[], Any]] = {
        "copy": lambda: second.copy_(first),
        "write": lambda: second.fill_(1.0),
        "read": lambda: first.sum(),
    }
    taken = measured({name: CallSampler([call]) for name, call in (calls | matrices).items()}, most=15)
    # The fastest sample: other processes use the memory too. Two runs in an hour gave medians of 21 and 42 GB/s.
    least = {name: min(timing.samples) for name, timing in taken.items()}
    return _ceilings(size, least, {name: 2 * sides[name] ** 3 / least[name] for name in matrices})


def _ceilings(size: int, seconds: dict[str, float], matmul: dict[str, float]) -> Ceilings:
    return Ceilings(size / seconds["read"], size / seconds["write"], 2 * size / seconds["copy"], matmul)
