"""A call of a generated kernel from Python: from an operator's arguments to its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import ReferenceRunsWarning, ToolchainError, ToolMissingError
from ..errors.base import warn
from ..launch.planner import Unplanned
from ..operator.family import refuse_overlap
from ..reference.tensors import extent, storage_of
from ..runtime.operator import Operator
from ..toolchain.cache import ships_prebuilt
from ..toolchain.shipped import built_elsewhere
from . import launch
from .compiler import Compiler
from .devices import DEVICES, Emulated
from .publish import publish
from .reference import full_shape, result_shape


class GeneratedCall:
    """A generated kernel as the function of an operator. `role`: 'forward', 'backward', 'second' (the backward of the
    backward), 'out' or 'inplace'."""

    def __init__(
        self, compiler: Compiler, device: str, role: str, operator: Operator, emulated: Emulated | None = None
    ) -> None:
        self.compiler = compiler
        self.operator = operator
        self.emulated = emulated is not None
        self.device = emulated or DEVICES[device]
        self.device_name = device
        self.role = role
        self.__name__ = f"generated {'CUDA' if device == 'cuda' else 'C++'}"
        self.__module__ = compiler.function.__module__
        self.__qualname__ = self.__name__

    def __call__(self, *args: Any) -> Any:
        outs: list[torch.Tensor] | None = None
        if self.role == "out":
            count = len(self.compiler.result_names)
            args, outs = args[:-count], list(args[-count:])
        arguments = self.compiler.arguments(self.role, args)
        tensors = arguments.tensors
        if self.role == "inplace":
            pairs = zip(self.compiler.signature.tensors, tensors, strict=True)
            outs = [tensor for argument, tensor in pairs if argument.mutated and tensor is not None]
            # For callers of torch.ops, as the op's own call does.
            refuse_overlap(self.compiler.name, self.compiler.signature, args)
        # A 0-dim CPU tensor may accompany tensors of another device.
        devices = [tensor.device for tensor in tensors if tensor is not None]
        device = next((each for each in devices if each.type != "cpu"), torch.device("cpu"))
        prepared = None if self.device_name in _unusable else self.compiler.prepared(arguments)
        if prepared is None:
            return NotImplemented
        if device.type != "cpu" or any(t is not None and t.device != device for t in tensors):
            tensors = [t if t is None or t.device == device else t.to(device) for t in tensors]
        if outs is not None and not _fits(prepared, outs, tensors):
            return NotImplemented
        direct = outs if outs is not None and _can_write(outs, tensors, self.compiler.rows) else None
        try:
            results = launch.run(self.device, prepared, tensors, arguments.values, device.index or 0, direct)
        except Unplanned:
            return NotImplemented
        except launch.NotCompiled as failed:
            if self.emulated:
                raise failed.error from None
            if failed.first:
                self._warn(failed.error, args)
            return NotImplemented
        except ToolchainError as error:
            if self.emulated:
                raise
            _unusable.add(self.device_name)  # calls cannot be planned
            warn(ReferenceRunsWarning(self.device_name, error))
            return NotImplemented
        if outs is not None and direct is None:
            for out, result in zip(outs, results, strict=True):
                out.copy_(result)
            return None
        if not self.emulated:
            publish(self.operator, self.role, self.device_name, device.index or 0, self.compiler, prepared)
        if outs is not None:
            return None
        if self.role in ("backward", "second"):
            return results
        return results[0] if len(results) == 1 else tuple(results)

    def _warn(self, error: ToolchainError, args: Sequence[Any]) -> None:
        """Without a compiler, once for each op that has prebuilt kernels, and once for all others."""
        name = f"a kernel of {self.operator.name}"
        if not isinstance(error, ToolMissingError):
            warning = ReferenceRunsWarning(self.device_name, error, name)
        else:
            shipped = ships_prebuilt(self.__module__)
            if (missed := (self.device_name, name if shipped else "")) in _missed:
                return
            _missed.add(missed)
            call = self.operator.signature.shown(args)
            given = (name, call, *built_elsewhere(self.__module__)) if shipped else ()
            warning = ReferenceRunsWarning(self.device_name, error, *given)
        warn(warning)


_unusable: set[str] = set()
"""Devices whose launches cannot be planned here."""
_missed: set[tuple[str, str]] = set()
"""Of which device and operator it has been said that there is no compiler; "" for all that have nothing prebuilt."""


def _fits(prepared: launch.Prepared, outs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether results can go into these as they are. The reference explains any other case."""
    level = prepared.level
    shape = full_shape(level, tensors)
    return shape is not None and all(
        tuple(out.shape) == result_shape(level, number, shape) and out.dtype == dtype
        for number, (out, dtype) in enumerate(zip(outs, level.dtypes, strict=True))
    )


def _can_write(outs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor | None], rows: bool) -> bool:
    """Whether a kernel can write directly into these: no element twice, and sharing no memory with each other, nor with
    an input unless they are the same tensor and the kernel reads each element once, unlike that of `rows`."""
    for number, out in enumerate(outs):
        if any(_ranges_meet(out, other) for other in outs[:number]):
            return False
        if any(stride == 0 and size > 1 for stride, size in zip(out.stride(), out.shape, strict=True)):
            return False
        for tensor in tensors:
            if tensor is None or not _ranges_meet(out, tensor):
                continue
            if (
                rows
                or tensor.data_ptr() != out.data_ptr()
                or tensor.stride() != out.stride()
                or tensor.shape != out.shape
            ):
                return False
    return True


def _ranges_meet(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether the memory between the first and the last element of two tensors has bytes in common."""
    if storage_of(first) != storage_of(second):
        return False
    (begin, end), (other_begin, other_end) = extent(first), extent(second)
    return begin < other_end and other_begin < end
