"""Publishes generated kernels that have run to the C++ runtime, so that later calls of the same kind need no Python."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..errors import ToolchainError
from ..launch.driver import driver, largest_cluster
from ..launch.planner import LayoutClass, counted, row
from ..reference.tensors import scalar_type
from ..runtime import native
from ..runtime.operator import Operator
from . import devices
from .compiler import Compiler
from .launch import Prepared, sums_of
from .tuning import planner_tuning


def publish(operator: Operator, role: str, device: str, index: int, compiler: Compiler, prepared: Prepared) -> None:
    """After `prepared` has served a call of the operator. The Python fallback needs none of this."""
    attachment = operator.attachment
    if not isinstance(attachment, native.Attachment):
        return
    _publish_once(attachment, "tuning", planner_tuning())
    if device == "cuda":
        _publish_gpu(attachment, index)
    architecture = devices.DEVICES[device].architecture(index)
    kernels = {layout: each for (target, layout), each in list(prepared.kernels.items()) if target == architecture}
    for layout in kernels:
        if layout.path != "stream":
            _publish_combines(attachment, device, index, prepared, layout)
    attachment.publish_generated(
        device,
        prepared,
        lambda: program_numbers(role, compiler, prepared),
        [(layout.encoded(index), kernel, tiles) for layout, (kernel, tiles) in kernels.items()],
    )


def program_numbers(role: str, compiler: Compiler, prepared: Prepared) -> list[int]:
    """A program as kernels.h's read_prepared takes it: what the planner knows of it, then what C++ needs besides."""
    inputs, results = prepared.inputs, len(compiler.result_names)
    first_argument = {"backward": results, "second": 1 + results}.get(role, 0)
    outs: list[int] = []
    if role == "out":
        outs = list(range(inputs, inputs + results))
    elif role == "inplace":
        outs = [slot for slot, argument in enumerate(compiler.signature.tensors) if argument.mutated]
    scalars = prepared.program.scalars
    return [
        *prepared.planned.numbers,
        *counted(
            (scalar.position + first_argument * (scalar.position >= 0), int(scalar.dtype is torch.float64))
            for scalar in scalars
        ),
        *counted((slot,) for slot in outs),
        int(role in ("backward", "second")),
    ]


def _publish_gpu(attachment: native.Attachment, index: int) -> None:
    cluster = largest_cluster(devices.DEVICES["cuda"].architecture(index))
    _publish_once(attachment, "gpu", index, devices.multiprocessors(index), cluster, driver().overlaps(index))


def _publish_combines(
    attachment: native.Attachment, device: str, index: int, prepared: Prepared, layout: LayoutClass
) -> None:
    for dtype, sums in sums_of(prepared.program, layout).items():
        jobs = 1 if device == "cpu" else sums
        address = _combine(device, index, dtype, jobs)
        if address is not None:
            _publish_once(attachment, "combine", native.SLOTS[device], index, scalar_type(dtype), jobs, address)


@functools.cache
def _combine(device: str, index: int, dtype: torch.dtype, jobs: int) -> int | None:
    """The address of a kernel that combines partial sums. None if it cannot be compiled here: C++ leaves a call that
    needs it to Python, which warns and runs the reference."""
    try:
        return devices.cpu_combine(dtype) if device == "cpu" else devices.cuda_combine(dtype, jobs, index)
    except ToolchainError:
        return None


_published: set[Any] = set()


def _publish_once(attachment: native.Attachment, what: str, *arguments: Any) -> None:
    """Data that operators share: constants, GPUs, the kernels that combine partial sums."""
    if (what, arguments) not in _published:
        attachment.publish_shared(what, *(row(each) if isinstance(each, tuple) else each for each in arguments))
        _published.add((what, arguments))
