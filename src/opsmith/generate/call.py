"""A call of a generated kernel from Python: from an operator's arguments to its results."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import ReferenceRunsWarning, SharedMemoryError, ToolchainError
from ..launch.planner import Unplanned
from ..reference.tensors import overlap, storage_of
from ..runtime.operator import Operator
from . import launch
from .compiler import Compiler
from .devices import DEVICES
from .emulated import Emulated
from .publish import publish
from .result_layout import full_shape


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
            self._refuse_shared(tensors)
        device = _device_of(tensors)
        prepared = None if self.device_name in _unusable else self.compiler.prepared(arguments)
        if prepared is None:
            return NotImplemented
        if device.type != "cpu" or any(t is not None and t.device != device for t in tensors):
            tensors = [t if t is None or t.device == device else t.to(device) for t in tensors]
        if outs is not None and not _fits(prepared, outs, tensors):
            return NotImplemented
        direct = outs if outs is not None and _can_write(outs, tensors) else None
        results = self._run(prepared, tensors, arguments.values, device.index or 0, direct)
        if results is None:
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

    def _run(
        self,
        prepared: launch.Prepared,
        tensors: Sequence[torch.Tensor | None],
        values: Sequence[Any],
        index: int,
        outs: Sequence[torch.Tensor] | None,
    ) -> list[torch.Tensor] | None:
        """The results, or None if the reference must compute them."""
        try:
            return launch.run(self.device, prepared, tensors, values, index, outs)
        except Unplanned:
            return None
        except launch.NotCompiled as failed:
            if self.emulated:
                raise failed.error from None
            if failed.first:
                self._warn(failed.error, f"a kernel of {self.operator.name}")
            return None
        except ToolchainError as error:
            if self.emulated:
                raise
            _unusable.add(self.device_name)  # no other kernel can be compiled or planned either
            self._warn(error, "pointwise kernels")
            return None

    def _warn(self, error: ToolchainError, what: str) -> None:
        warnings.warn(ReferenceRunsWarning(self.device_name, str(error), what), stacklevel=4)

    def _refuse_shared(self, tensors: Sequence[torch.Tensor | None]) -> None:
        """For callers of torch.ops, as the op's own call does: a mutated tensor must not be passed twice."""
        arguments = self.compiler.signature.tensors
        for index, (argument, tensor) in enumerate(zip(arguments, tensors, strict=True)):
            for other, second in zip(arguments[:index], tensors[:index], strict=True):
                if (argument.mutated or other.mutated) and tensor is not None and second is not None:
                    if overlap(tensor, second):
                        raise SharedMemoryError(self.compiler.name, other.name, argument.name)


_unusable: set[str] = set()
"""Devices that this machine can compile no kernel for."""


def _device_of(tensors: Sequence[torch.Tensor | None]) -> torch.device:
    """The device of a call: a 0-dim CPU tensor may accompany tensors of another."""
    devices = [tensor.device for tensor in tensors if tensor is not None]
    return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))


def _fits(prepared: launch.Prepared, outs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether results can go into these as they are. The reference explains any other case."""
    shape = full_shape(prepared.level, tensors)
    return all(
        tuple(out.shape) == shape and out.dtype == dtype for out, dtype in zip(outs, prepared.level.dtypes, strict=True)
    )


def _can_write(outs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether a kernel can write directly into these: no element twice, and sharing no memory with each other, nor with
    an input unless they are the same tensor."""
    for number, out in enumerate(outs):
        if any(_ranges_meet(out, other) for other in outs[:number]):
            return False
        if any(stride == 0 and size > 1 for stride, size in zip(out.stride(), out.shape, strict=True)):
            return False
        for tensor in tensors:
            if tensor is None or not _ranges_meet(out, tensor):
                continue
            if tensor.data_ptr() != out.data_ptr() or tensor.stride() != out.stride() or tensor.shape != out.shape:
                return False
    return True


def _ranges_meet(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether the memory between the first and the last element of two tensors has bytes in common."""
    if storage_of(first) != storage_of(second):
        return False
    (begin, end), (other_begin, other_end) = _range(first), _range(second)
    return begin < other_end and other_begin < end


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
