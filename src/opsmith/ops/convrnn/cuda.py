"""convrnn on a GPU: the instance of kernel.cu for a call, and its launch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import opsmith

# NVRTC compiles the lambdas in it as host code without this option.
source = opsmith.cuda_source(Path(__file__).parent / "kernel.cu", options=("-default-device",))

ACTIVATIONS = {"none": 0, "relu": 1, "tanh": 2}
ELEMENTS = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "opsmith::float16",
    torch.bfloat16: "opsmith::bfloat16",
}
LANES = 32
MOST_TAPS = 15
MOST_UNITS_OF_A_WARP = 8 * LANES
MOST_THREADS = 1024
BYTES_AHEAD = 48 * 1024
"""Shared memory of a block for prefetched steps."""


@dataclass(frozen=True)
class Plan:
    """How a sequence is divided. `units` elements per thread, read `vector` at a time; `whole`: no thread has fewer.
    One warp per sequence, `sequences` of them per block; or, `in_block`, all threads of a block. `ahead` steps are
    prefetched."""

    element: str
    taps: int
    units: int
    vector: int
    whole: bool
    in_block: bool
    activation: int
    ahead: int
    threads: int
    sequences: int
    shared: int

    def template(self, *more: bool) -> str:
        arguments = (
            self.element, self.taps, self.units, self.vector, self.whole, self.in_block, self.most_threads,
            self.activation, self.ahead, *more,
        )  # fmt: skip
        return ", ".join(str(each).lower() if isinstance(each, bool) else str(each) for each in arguments)

    @property
    def most_threads(self) -> int:
        return MOST_THREADS if self.in_block else self.threads * self.sequences

    @property
    def block(self) -> tuple[int, int]:
        return self.threads, self.sequences

    def grid(self, batch: int) -> int:
        return -(-batch // self.sequences)


@functools.lru_cache(maxsize=512)
def plan(
    dtype: torch.dtype,
    batch: int,
    steps: int,
    width: int,
    taps: int,
    activation: str,
    streams: int,
    alignment: int,
    multiprocessors: int,
    shared_limit: int,
) -> Plan | None:
    """None if no kernel supports it. `alignment`: of every tensor, in bytes; `streams`: the tensors that each step
    reads."""
    if dtype not in ELEMENTS or taps > MOST_TAPS or not batch or not steps or not width or steps >= 1 << 30:
        return None
    size = dtype.itemsize
    in_block = width > MOST_UNITS_OF_A_WARP
    if in_block:
        units = 2
        while units * MOST_THREADS < width:
            units *= 2
        threads = LANES * -(-width // (units * LANES))
    else:
        units, threads = -(-width // LANES), LANES
        if size == 2 and width % 2 == 0:
            units += units % 2  # asynchronous copies have at least 4 bytes: two half numbers
    vector = 1
    while vector * 2 * size <= min(16, alignment) and units % (vector * 2) == 0 and width % (vector * 2) == 0:
        vector *= 2
    # Measured on one H200, H=64: one warp per block and 32 steps while every warp can have its own scheduler (56 ns per
    # step); beyond, 4 warps and 16 steps (90 % of copy bandwidth at a batch of 4096).
    few = batch <= 4 * multiprocessors
    sequences = 1 if in_block or few else 4
    state = 2 * (threads * units + taps - 1) * max(size, 4) if in_block else 0
    row = streams * threads * sequences * units * size
    ahead = 32 if few else 16
    while ahead > 1 and (row * ahead > BYTES_AHEAD or row * ahead + state > shared_limit):
        ahead //= 2
    shared = row * ahead + state
    if shared > shared_limit or units > 32:
        return None
    return Plan(
        ELEMENTS[dtype], taps, units, vector, width == threads * units, in_block, ACTIVATIONS[activation], ahead,
        threads, sequences, shared,
    )  # fmt: skip


SHARED_FOR_SUMS = 4096
"""Bytes of a block's shared memory that are left for its sums."""


def _plan(tensors: list[Tensor], kernel: Tensor, activation: str, streams: int) -> Plan | None:
    x = tensors[0]
    batch, steps, width = x.shape
    address = functools.reduce(int.__or__, (tensor.data_ptr() for tensor in tensors), 16)
    gpu = opsmith.gpu_of(x)
    return plan(
        x.dtype, batch, steps, width, kernel.shape[2], activation, streams, address & -address, gpu.multiprocessors,
        gpu.shared_bytes - SHARED_FOR_SUMS,
    )  # fmt: skip


def forward(x: Tensor, kernel: Tensor, hidden: Tensor, activation: str) -> Any:
    output = torch.empty_like(x)
    chosen = _plan([x, hidden, output], kernel, activation, streams=1)
    if chosen is None:
        return NotImplemented
    batch, steps, width = x.shape
    launch = source[f"convrnn::forward<{chosen.template()}>"]
    launch[chosen.grid(batch), chosen.block, chosen.shared](x, kernel, hidden, output, batch, steps, width)
    return output


def backward(
    grads: Any, x: Tensor, kernel: Tensor, hidden: Tensor, activation: str, output: Tensor, *, needs: Any
) -> Any:
    (grad,) = grads
    streams = 3 if activation == "tanh" and x.dtype.itemsize == 2 else 2
    chosen = _plan([x, hidden, output, grad], kernel, activation, streams)
    if chosen is None:
        return NotImplemented
    batch, steps, width = x.shape
    blocks = chosen.grid(batch)
    grad_x = torch.empty_like(x) if needs.x else None
    grad_hidden = torch.empty_like(hidden) if needs.hidden else None
    grad_kernel = partial_sums = finished = None
    if needs.kernel:
        grad_kernel = torch.empty_like(kernel)
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        partial_sums = torch.empty(blocks, chosen.taps, dtype=wide, device=x.device)
        finished = _counter(x.device)
    launch = source[f"convrnn::backward<{chosen.template(needs.x, needs.kernel)}>"]
    launch[blocks, chosen.block, chosen.shared](
        grad, x, kernel, hidden, output, grad_x, grad_hidden, grad_kernel, partial_sums, finished, batch, steps, width
    )
    return grad_x, grad_kernel, grad_hidden


_counters: dict[tuple[torch.device, int], Tensor] = {}


def _counter(device: torch.device) -> Tensor:
    """A zero that the kernel resets to zero. One per stream, where kernels run one after another. A captured graph may
    be replayed on any stream, so it gets its own."""
    if device.type == "cpu" or torch.cuda.is_current_stream_capturing():  # emulated, or captured
        return torch.zeros(1, dtype=torch.int32, device=device)
    key = device, torch.cuda.current_stream(device).cuda_stream
    if key not in _counters:
        _counters[key] = torch.zeros(1, dtype=torch.int32, device=device)
    return _counters[key]


INSTANCES = [
    f"convrnn::{kernel}<{arguments}>"
    for kernel, more in (("forward", ""), ("backward", ", true, true"))
    for arguments in (
        f"float, 3, 2, 2, true, false, 32, 2, 32{more}",
        f"double, 15, 4, 1, false, false, 128, 1, 4{more}",
        f"opsmith::bfloat16, 5, 4, 2, false, true, 1024, 2, 8{more}",
        f"opsmith::float16, 3, 2, 2, true, false, 128, 0, 16{more}",
    )
]
"""The instances that the tests compile for every GPU: each element type, each way of dividing a sequence."""
