"""One call of a generated kernel from Python: results allocated, launches planned, kernels compiled and launched.

What differs between devices is in devices.py. The C++ runtime does the same in generated_call.h.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from ..errors import ToolchainError
from ..launch.planner import Combine, LayoutClass, Pass, Plan, Unplanned, counted
from ..launch.planner import Program as PlannedProgram
from ..reference.tensors import is_placeholder, scalar_type
from . import tuning
from .expression import Form, Program, Scalar
from .levels import Level
from .rows.registers import carried_bytes
from .text import HALF


class Device(Protocol):
    """Compiles and launches kernels on one kind of device. Kernels are shared by devices of one architecture."""

    _target: Any = None  # of the only device of its kind

    def architecture(self, index: int) -> str: ...

    def target(self, index: int) -> Any:
        """The planner's Target, as a row."""
        return self._target

    def compile(self, program: Program, layout: LayoutClass) -> Any: ...

    def launch(self, kernel: Any, launch: Pass, blocks: int, memory: Sequence[torch.Tensor], index: int) -> None:
        """`memory`: every tensor that the launch parameters point into."""

    def combine(self, dtype: torch.dtype, combine: Combine, memory: Sequence[torch.Tensor], index: int) -> None: ...


class Compiled(NamedTuple):
    """A compiled kernel, and the elements per block of one without sums (tuning.tiles)."""

    kernel: Any
    tiles: tuple[int, int, int, int]


@dataclass
class Prepared:
    """A program for tensors of certain kinds, and its kernels compiled so far."""

    level: Level
    program: Program
    inputs: int  # the tensors of a call, without out=
    kernels: dict[tuple[str, LayoutClass], Compiled] = field(default_factory=dict)  # by architecture
    failed: dict[Any, ToolchainError] = field(default_factory=dict)  # those that do not compile

    def __post_init__(self) -> None:
        level, program = self.level, self.program
        self.planned = PlannedProgram(
            [
                *counted((read.slot, read.dtype.itemsize) for read in program.reads),
                *counted(
                    (
                        scalar_type(dtype),
                        _shape_of(like),
                        dtype.itemsize,
                        dtype in HALF,
                    )
                    for dtype, like in zip(level.dtypes, level.likes, strict=True)
                ),
                *counted((_bits(each.dimensions), len(each.slots), *sorted(each.slots)) for each in level.covers),
                self.inputs,
                len(program.scalars),
                *_rows(program),
            ]
        )
        self.dtypes = {scalar_type(dtype): dtype for dtype in level.dtypes}


def _shape_of(like: int | Form) -> int:
    """The slot whose shape a result has, or its form as program.h's negative numbers."""
    return -1 - like.value if isinstance(like, Form) else like


def _bits(dimensions: Sequence[int] | None) -> int:
    """Dimensions counted from the last as bits, 0 for all."""
    return sum(1 << (-1 - dimension) for dimension in dimensions or ())


def _rows(program: Program) -> list[int]:
    """The dimensions along the row, the scalars that are sizes, the slots without the row's dimensions, and what passes
    carry on; nothing of a pointwise program."""
    rows = program.rows
    if rows is None:
        return [0]
    return [
        _bits(rows.dimensions),
        *counted((scalar.position,) for scalar in program.scalars),
        *counted((slot,) for slot, form in enumerate(rows.forms) if form is Form.SQUEEZED),
        len(program.checks) > 0,
        carried_bytes(program),
    ]


def sums_of(program: Program, layout: LayoutClass) -> Counter[torch.dtype]:
    """How many results of each dtype a kernel of this layout sums. Calls with several partial sums of each need the
    kernel that combines them, too; whether a call has several depends on its sizes."""
    modes = layout.modes[len(program.reads) :]
    sums = zip(program.results, modes, strict=True)
    return Counter(result.dtype for result, mode in sums if mode.startswith("reduced:"))


class NotCompiled(Exception):
    """A kernel could not be compiled. `first`: this call tried to; later calls do not."""

    def __init__(self, error: ToolchainError, first: bool) -> None:
        self.error = error
        self.first = first


def run(
    device: Device,
    prepared: Prepared,
    tensors: Sequence[torch.Tensor | None],
    values: Sequence[Any],
    index: int,
    outs: Sequence[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """The results of a program on these tensors, all of one device; written into `outs` if given. `values`: the
    arguments of the op.

    Raises Unplanned if one kernel cannot compute the call, NotCompiled if its kernel has no binary, and a
    ToolchainError if no kernel of this device can run here."""
    program = prepared.program
    plan = Plan(prepared.planned, device.target(index), [*tensors, *(outs or ())])
    where = next(tensor.device for tensor in tensors if tensor is not None)
    results = list(outs) if outs is not None else [
        torch.empty_strided(*plan.result(number), dtype=dtype, device=where)
        for number, dtype in enumerate(prepared.level.dtypes)
    ]  # fmt: skip
    if plan.count == 0:
        for result in results:  # The sum of no elements.
            result.zero_()
        return results
    reads = [tensor for read in program.reads if (tensor := tensors[read.slot]) is not None]
    if any(is_placeholder(tensor) for tensor in reads):
        raise Unplanned
    plan.bind(reads, results, [_encoded(values, scalar) for scalar in program.scalars])
    for launch in plan.passes():
        compiled = _compiled(device, prepared, launch.layout, index)
        memory = [*reads, *results]
        if launch.scratch_bytes:
            scratch = torch.empty(launch.scratch_bytes, dtype=torch.uint8, device=where)
            plan.place(scratch.data_ptr())
            memory.append(scratch)
        device.launch(compiled.kernel, launch, launch.blocks or plan.stream_blocks(compiled.tiles), memory, index)
        if plan.refused:
            raise Unplanned
        for combine in launch.combines:
            dtype = prepared.dtypes[combine.dtype]
            with _tried_once(prepared, (device.architecture(index), dtype)):
                device.combine(dtype, combine, memory, index)
    return results


def _encoded(values: Sequence[Any], scalar: Scalar) -> int:
    if scalar.position < 0:
        return 0  # a size, which the planner knows
    value = values[scalar.position]
    if scalar.dtype is torch.float64:
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    return int(value)


def _compiled(device: Device, prepared: Prepared, layout: LayoutClass, index: int) -> Compiled:
    key = device.architecture(index), layout
    found = prepared.kernels.get(key)
    if found is None:
        with _tried_once(prepared, key):
            kernel = device.compile(prepared.program, layout)
        tiles = tuning.tiles(prepared.program, layout) if layout.path == "stream" else (1, 1, 1, 1)
        found = prepared.kernels[key] = Compiled(kernel, tiles)
    return found


@contextmanager
def _tried_once(prepared: Prepared, key: Any) -> Iterator[None]:
    """Around the compilation of a kernel."""
    if key in prepared.failed:
        raise NotCompiled(prepared.failed[key], first=False)
    try:
        yield
    except ToolchainError as error:
        prepared.failed[key] = error
        raise NotCompiled(error, first=True) from error
