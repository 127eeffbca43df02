"""How the arguments of a launch become the memory that the driver reads them from."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence
from typing import Any

import torch

from ...cuda_text.declarations import KernelText
from ...errors import KernelArgumentError
from .parameters import Parameter, Place, explain, parameter
from .signature import DeviceType

_PLAIN = {torch.Tensor, torch.nn.Parameter}

Frame = tuple[Any, int, Any]
"""A buffer of parameters, the address of the array of their addresses, and that array."""


class Plan:
    """A kernel's parameters and where each stands in a buffer: worked out once, used by every launch."""

    def __init__(self, kernel: str, types: Sequence[DeviceType], text: KernelText | None) -> None:
        self.kernel = kernel
        written = text.parameters if text is not None and len(text.parameters) == len(types) else ()
        names = [each.name for each in written] if written else [""] * len(types)
        declared = [shown(type.name) for type in types]
        self.signature = f"{kernel}({', '.join(f'{d} {n}'.strip() for d, n in zip(declared, names, strict=True))})"
        self.parameters: list[Parameter] = [
            parameter(Place(kernel, self.signature, position, name, what), type)
            for position, (name, what, type) in enumerate(zip(names, declared, types, strict=True))
        ]
        for each in self.parameters:
            each.names = names
        self._steps = [(each.dtype, each.word) for each in self.parameters]
        self.count = len(types)
        # One after the other, without gaps: the driver copies each from its own address, by the size the kernel tells.
        self._packed = struct.Struct("<" + "".join(each.format for each in self.parameters))
        sizes = [each.type.size for each in self.parameters]
        self.offsets = [sum(sizes[:position]) for position in range(self.count)]
        # Frames that no launch is using. A launch takes one out and puts it back, so that no two ever share one: not
        # two threads, nor a finaliser that launches in the midst of a launch.
        self.frames: list[Frame] = []

    def pack(self, args: Sequence[Any], index: int) -> Frame:
        """The arguments of a launch on a device, in a frame that is the caller's until it is put back in `frames`."""
        if len(args) != self.count:
            raise self._miscounted(args)
        try:
            words = []
            for (dtype, word), value in zip(self._steps, args):  # noqa: B905  (counted above)
                if (
                    type(value) in _PLAIN
                    and value.dtype is dtype
                    and value.get_device() == index
                    and value.is_contiguous()
                    and not value.is_neg()
                ):
                    words.append(value.data_ptr())
                else:
                    words.append(word(value, args, index))
        except RuntimeError:  # torch's own, of a tensor that has no strides or no memory: `word` has words for it
            words = [each.word(value, args, index) for each, value in zip(self.parameters, args, strict=True)]
        try:
            frame = self.frames.pop()
        except IndexError:
            frame = self._new_frame()
        try:
            self._packed.pack_into(frame[0], 0, *words)
        except (struct.error, OverflowError):
            self.frames.append(frame)
            explain(self.parameters, words)
            raise
        return frame

    def _new_frame(self) -> Frame:
        buffer = ctypes.create_string_buffer(max(self._packed.size, 1))
        start = ctypes.addressof(buffer)
        addresses = (ctypes.c_void_p * max(self.count, 1))(*(start + offset for offset in self.offsets))
        return buffer, ctypes.addressof(addresses), addresses

    def _miscounted(self, args: Sequence[Any]) -> KernelArgumentError:
        names = ", ".join(each.place.name or f"argument {n + 1}" for n, each in enumerate(self.parameters))
        taken = f"takes {self.count} argument{'' if self.count == 1 else 's'}{f' ({names})' if names else ''}"
        return KernelArgumentError(self.kernel, f"it {taken}, not {len(args)}", self.signature)


def shown(type: str) -> str:
    """'const float*' for 'float const*', as people write it."""
    found = re.match(r"^([\w:<>, ]+?) const(\*.*|)$", type)
    return f"const {found[1]}{found[2]}" if found else type
