"""What a compiled kernel needs of a GPU, found without one: from the assembler's log and from the cubin."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from ...toolchain import elf
from ..configuration import MAX_THREADS

REGISTERS_OF_A_BLOCK = 65536  # on every GPU from sm_70 on

_ENTRY = re.compile(r"Compiling entry function '(?P<symbol>[^']+)'")
_STACK = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes")
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<bytes>\d+) bytes smem")
_PROPERTIES = re.compile(r"Function properties for (?P<symbol>\S+)")

_MAX_THREADS_ATTRIBUTE = 0x05  # EIATTR_MAX_THREADS: __launch_bounds__ in a cubin's .nv.info


@dataclass(frozen=True)
class Attributes:
    """What a kernel needs: registers and local memory per thread, shared memory per block, and the largest block.

    `spill_bytes` are stored because registers run out; `local_bytes` are all the local memory of a thread, spills and
    arrays; `constant_bytes` are the source's __constant__ variables together.
    """

    registers: int
    spill_bytes: int
    local_bytes: int
    shared_bytes: int
    constant_bytes: int
    max_threads_per_block: int


def from_build(symbol: str, log: str, cubin: bytes) -> Attributes:
    """A kernel's attributes, from the log of ptxas and the sections of the cubin."""
    registers = stores = stack = shared = 0
    entry = function = ""
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            entry = function = found["symbol"]
        elif found := _PROPERTIES.search(line):
            function = found["symbol"]
        elif entry == symbol and function == symbol and (found := _STACK.search(line)):
            stack, stores = int(found["stack"]), int(found["stores"])
        elif entry == symbol and (found := _USED.search(line)):
            registers = int(found["registers"])
            shared = int(found["bytes"]) if (found := _SHARED.search(line)) else 0
    bound, constant = MAX_THREADS, 0
    for section in elf.read(cubin)[0]:
        if section.name == ".nv.constant3":
            constant = section.size
        elif section.name == f".nv.info.{symbol}":
            bound = _launch_bound(cubin[section.offset : section.offset + section.size]) or MAX_THREADS
    return Attributes(registers, stores, stack, shared, constant, min(bound, _threads_with(registers)))


def _threads_with(registers: int) -> int:
    """The largest block whose registers fit: they are allocated to four warps at a time, 8 a thread."""
    a_warp = 32 * 8 * -(-max(registers, 1) // 8)
    return min(MAX_THREADS, 32 * (REGISTERS_OF_A_BLOCK // a_warp // 4 * 4))


def _launch_bound(information: bytes) -> int | None:
    """The threads that __launch_bounds__ allows, from a kernel's .nv.info: entries of a form, an attribute, and a value
    or the size of what follows."""
    position = 0
    while position + 4 <= len(information):
        form, attribute, value = struct.unpack_from("<BBH", information, position)
        position += 4
        if form == 4:
            if attribute == _MAX_THREADS_ATTRIBUTE and value >= 12:
                x, y, z = struct.unpack_from("<III", information, position)
                return int(x * y * z)
            position += value
    return None
