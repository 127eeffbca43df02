"""From what the runtime noted of a fault to an error that names the author's line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from ..errors import KernelFault
from .library import INCLUDE, OPSMITH_INCLUDE, SETTLED, Library
from .structures import Dim, Fault, Place

_KINDS = {
    1: "out of bounds",
    2: "out of bounds",
    3: "misaligned access",
    4: "uninitialised shared memory",
    5: "partial barrier",
    6: "inactive lane",
    7: "data race",
    8: "signed overflow",
    9: "hang",
    10: "failed assertion",
    11: "write to a constant",
    12: "bad memory access",
    13: "division by zero",
    14: "out of bounds",
}


def fault_of(kernel: str, library: Library, found: Fault, tensors: Sequence[str], seconds: float) -> KernelFault:
    """The error for a fault. `tensors` names the regions that are tensors, in their order: 'x, float32 [64]'."""
    file, line = where(library, found.pc)
    kind = _KINDS.get(found.kind, "fault")
    what, notes = _told(library, found, tensors, seconds)
    block, thread = _triple(found.block), _triple(found.thread)
    return KernelFault(kernel, kind, what, file, line, block, thread, notes)


def where(library: Library, pc: int) -> tuple[str | None, int | None]:
    """The author's file and line of a place in the code: of inlined calls, the innermost that is not the emulator's."""
    tool = shutil.which("addr2line")
    if tool is None or not pc:
        return None, None
    command = [tool, "-i", "-e", str(library.path), hex(pc - library.base)]
    told = subprocess.run(command, capture_output=True, text=True).stdout
    for text in told.splitlines():
        file, _, number = text.split(" (discriminator")[0].rpartition(":")
        inside = file.startswith(SETTLED[INCLUDE])
        if file.startswith(SETTLED[OPSMITH_INCLUDE]):
            file = str(OPSMITH_INCLUDE) + file.removeprefix(SETTLED[OPSMITH_INCLUDE])
        label = file.find("/<cuda_source ")  # a text whose place is not known: the compiler takes its label for a file
        file = file[label + 1 :] if label >= 0 else file
        if number.isdigit() and int(number) and not inside and file != "??" and os.path.basename(file) != "<opsmith>":
            return file, int(number)
    return None, None


def _triple(dim: Dim) -> tuple[int, int, int]:
    return dim.x, dim.y, dim.z


def _told(library: Library, found: Fault, tensors: Sequence[str], seconds: float) -> tuple[str, list[str]]:
    does = "writes" if found.is_write else "reads"
    words = found.words.decode(errors="replace")
    if found.kind == 1:
        return f"it {does} {found.size} bytes {_beside(library, found, tensors)}", []
    if found.kind == 14:
        return f"it {does} through a null pointer (address {found.address:#x})", []
    if found.kind == 2:
        return f"it {does} {found.size} bytes {_shared_place(library, found)}", []
    if found.kind == 3:
        return f"it reaches for {found.size} bytes at an address that is no multiple of {found.size}", [
            "A GPU refuses it. Read such data element by element, or see that rows begin at such multiples."
        ]
    if found.kind == 4:
        return f"it reads {found.size} bytes of shared memory that no thread of the block has written", []
    if found.kind == 5:
        return f"__syncthreads() is for all threads of a block: {words}", _waits(library, found)
    if found.kind == 6:
        return f"with mask {found.mask:#010x} {words}", _waits(library, found)
    if found.kind == 7:
        return _race(library, found, tensors)
    if found.kind == 8:
        advice = "Compute indices in 64 bits: static_cast<long long>(a) * b."
        return f"the {words} goes beyond what its signed type holds, and what then comes of it is undefined", [advice]
    if found.kind == 9:
        if words:
            return words, []
        return f"the launch has not ended within {seconds:g} s", _waits(library, found)
    if found.kind == 10:
        return f"assert({words})", []
    if found.kind == 11:
        return f"it writes to {_variable(library, found, tensors)}", []
    if found.kind == 12:
        return f"it reaches for memory that is not there (address {found.address:#x})", [
            "checks=True tells how far from which tensor. If it was on, the stack of a thread, 256 KiB, is used up."
        ]
    return "an integer is divided by zero", []


def _beside(library: Library, found: Fault, tensors: Sequence[str]) -> str:
    if found.region < 0:
        return "of memory that no tensor of the launch holds"
    if found.region >= len(tensors):
        return f"at byte {found.offset} of {_variable(library, found, tensors)}"
    name = tensors[found.region]
    if found.offset < 0:
        return f"that begin {-found.offset} bytes before {name}"
    return f"at byte {found.offset} of {name}"


def _variable(library: Library, found: Fault, tensors: Sequence[str]) -> str:
    return f"the variable {library.names[library.variables[found.region - len(tensors)].number]}"


def _shared_place(library: Library, found: Fault) -> str:
    if found.region == -1 and found.offset < 0:
        return f"that begin {-found.offset} bytes before the dynamic shared memory"
    if found.region == -1:
        return f"at byte {found.offset} of the dynamic shared memory, of which the launch has {found.words.decode()}"
    if found.region <= -3:
        variable = library.shared[-3 - found.region]
        if found.offset < 0:
            return f"that begin {-found.offset} bytes before {library.names[variable.number]}"
        return f"at byte {found.offset} of {library.names[variable.number]}, which has {variable.end - variable.begin}"
    return "of shared memory that no variable holds"


def _race(library: Library, found: Fault, tensors: Sequence[str]) -> tuple[str, list[str]]:
    does = "writes" if found.is_write else "reads"
    other_file, other_line = where(library, found.other.pc)
    memory = "shared memory" if found.region < 0 else tensors[found.region] if found.region < len(tensors) else "memory"
    place = f"byte {found.offset} of {memory}" if found.region >= 0 else "a word of shared memory"
    what = f"it {does} {place}, which block {_triple(found.other.block)}, thread {_triple(found.other.thread)} also"
    what += f" accesses at {other_file}:{other_line}, and nothing puts the two in order"
    if _triple(found.block) != _triple(found.other.block):
        return what, ["Blocks run in any order: use atomics, or give each block its own place."]
    return what, ["Put __syncthreads() (within a warp: __syncwarp()) between them, or use atomics."]


def _waits(library: Library, found: Fault) -> list[str]:
    notes = []
    for index in range(found.waits):
        place: Place = found.wait[index]
        file, line = where(library, place.pc)
        threads = "1 thread waits" if place.count == 1 else f"{place.count} threads wait"
        notes.append(f"  {threads} at {file}:{line}, the first of them thread {_triple(place.thread)}")
    return notes
