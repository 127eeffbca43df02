"""How the arguments of a launch become the memory that the driver reads them from."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import KernelArgumentError
from .origin import Snapshot
from .parameters import Parameter, Place, explain, parameter
from .types import DeviceType

_PLAIN = {torch.Tensor, torch.nn.Parameter}

Frame = tuple[Any, int, Any]
"""A buffer of parameter values, the address of the array of their addresses, and that array."""


class Plan:
    """A kernel's parameters and the place of each in a buffer: computed once, used by every launch."""

    def __init__(self, kernel: str, types: Sequence[DeviceType], snapshot: Snapshot) -> None:
        text = snapshot.found.kernels.get(kernel.partition("<")[0])
        written = text.parameters if text is not None and len(text.parameters) == len(types) else ()
        self.names = [each.name for each in written] if written else [""] * len(types)
        declared = [shown(type.name) for type in types]
        signature = f"{kernel}({', '.join(f'{d} {n}'.strip() for d, n in zip(declared, self.names, strict=True))})"
        self.kernel = kernel
        self.declared = functools.partial(snapshot.declared, "__global__", kernel, signature)
        self.parameters: list[Parameter] = [
            parameter(Place(kernel, self.declared, position, name, type_name), type)
            for position, (name, type_name, type) in enumerate(zip(self.names, declared, types, strict=True))
        ]
        for each in self.parameters:
            each.names = self.names
        self._steps = [(each.dtype, each.convert) for each in self.parameters]
        self.count = len(types)
        # Without gaps: the driver copies each value from its own address, by the size that the kernel declares.
        self._packed = struct.Struct("<" + "".join(each.format for each in self.parameters))
        sizes = [each.type.size for each in self.parameters]
        self.offsets = [sum(sizes[:position]) for position in range(self.count)]
        # Frames that no launch is using. A launch takes one out and puts it back, so that no two share one: neither two
        # threads, nor a finaliser that launches during a launch.
        self.frames: list[Frame] = []

    def pack(self, args: Sequence[Any], index: int) -> Frame:
        """The arguments of a launch on a device, in a frame that is the caller's until it is put back in `frames`."""
        if len(args) != self.count:
            raise KernelArgumentError(self.kernel, miscounted(self.names, len(args)), self.declared())
        try:
            values = []
            for (dtype, convert), value in zip(self._steps, args):  # noqa: B905  (counted above)
                if (
                    type(value) in _PLAIN
                    and value.dtype is dtype
                    and value.get_device() == index
                    and value.is_contiguous()
                    and not value.is_neg()
                ):
                    values.append(value.data_ptr())
                else:
                    values.append(convert(value, args, index))
        except RuntimeError:  # torch's own, for a tensor without strides or memory: `convert` raises a better one
            values = [each.convert(value, args, index) for each, value in zip(self.parameters, args, strict=True)]
        try:
            frame = self.frames.pop()
        except IndexError:
            frame = self._new_frame()
        try:
            self._packed.pack_into(frame[0], 0, *values)
        except (struct.error, OverflowError):
            self.frames.append(frame)
            explain(self.parameters, values)
            raise
        return frame

    def _new_frame(self) -> Frame:
        buffer = ctypes.create_string_buffer(max(self._packed.size, 1))
        start = ctypes.addressof(buffer)
        addresses = (ctypes.c_void_p * max(self.count, 1))(*(start + offset for offset in self.offsets))
        return buffer, ctypes.addressof(addresses), addresses


def miscounted(names: Sequence[str], given: int) -> str:
    """'it takes 2 arguments (x, n), not 1'."""
    count = len(names)
    listed = ", ".join(name or f"argument {position + 1}" for position, name in enumerate(names))
    return f"it takes {count} argument{'' if count == 1 else 's'}{f' ({listed})' if listed else ''}, not {given}"


def shown(type: str) -> str:
    """'const float*' for 'float const*', as people write it."""
    found = re.match(r"^([\w:<>, ]+?) const(\*.*|)$", type)
    return f"const {found[1]}{found[2]}" if found else type
