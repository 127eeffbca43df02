"""The tensors of a launch as the kernel sees them: each in separate memory, with nothing beside it.

An allocator rounds sizes up and puts tensors side by side, so a kernel that runs over the end of one may go unnoticed.
A checked launch therefore works on copies: the bytes from a tensor's first to its last element, and around them a
margin that belongs to no tensor. Views of one memory stay views of one memory; alignment is as on a GPU, whose
allocations begin at multiples of 256 bytes.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..reference.tensors import extent

MARGIN = 4096
ALIGNMENT = 256

_C = ctypes.CDLL(None)
_C.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Piece(NamedTuple):
    """Memory of a tensor that a launch may access."""

    name: str
    description: str  # 'float32 [64]'
    begin: int
    end: int  # the address after its last byte
    storage: int  # where the memory begins that it lies in

    def __str__(self) -> str:
        return f"{self.name} ({self.description}, {self.end - self.begin} bytes)"


def piece(name: str, tensor: torch.Tensor) -> Piece:
    description = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    return Piece(name, description, *extent(tensor), tensor.untyped_storage().data_ptr())


@dataclass
class Span:
    """Bytes of a storage that tensors of the launch lie in, and their copy."""

    begin: int
    end: int
    storage: int
    address: int = 0  # of the copy of `begin`

    @property
    def size(self) -> int:
        return self.end - self.begin


class GuardedMemory:
    """Copies of the launch's tensors."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = [each for each in pieces if each.begin < each.end]
        self.spans: list[Span] = []
        for each in sorted(self.pieces, key=operator.attrgetter("begin")):
            if self.spans and each.begin < self.spans[-1].end:  # also of other storages: two tensors of one array
                self.spans[-1].end = max(self.spans[-1].end, each.end)
            else:
                self.spans.append(Span(each.begin, each.end, each.storage))
        sizes = [MARGIN + ALIGNMENT + span.size for span in self.spans]
        self._memory = torch.empty(sum(sizes) + MARGIN, dtype=torch.uint8)
        start = self._memory.data_ptr()
        for span, size in zip(self.spans, sizes, strict=True):
            address = start + MARGIN
            span.address = address + (span.begin - span.storage - address) % ALIGNMENT
            ctypes.memmove(span.address, span.begin, span.size)
            start += size

    def address(self, original: int) -> int:
        """Where the copy of a byte is; for the byte after a tensor's last one, the byte after the copy's last one."""
        for span in reversed(self.spans):  # of two that are side by side, the one that begins there
            if span.begin <= original <= span.end:
                return span.address + original - span.begin
        return original

    @property
    def descriptions(self) -> list[str]:
        """The tensors of each span, for messages."""
        inside = [[str(each) for each in self.pieces if span.begin <= each.begin < span.end] for span in self.spans]
        return [" and ".join(dict.fromkeys(names)) for names in inside]

    def write_back(self) -> None:
        """Store what the kernel has changed. A tensor that it only read may lie in memory that cannot be written."""
        for span in self.spans:
            if _C.memcmp(span.begin, span.address, span.size):
                ctypes.memmove(span.begin, span.address, span.size)
