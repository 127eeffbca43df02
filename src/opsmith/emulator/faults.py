"""From what the runtime noted of a fault to an error that names the author's line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from ..errors import KernelFault
from .assembly import INCLUDE, OPSMITH_INCLUDE, SETTLED
from .library import Library
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
    16: "stack overflow",
    17: "illegal instruction",
    18: "C++ exception",
    19: "use after free",
    20: "bad free",
}
_ALLOCATED = -2  # kAllocated of native/interface.h


def fault_of(kernel: str, library: Library, found: Fault, tensors: Sequence[str], seconds: float) -> KernelFault:
    """The error for a fault. `tensors` names the regions that are tensors, in their order: 'x, float32 [64]'."""
    file, line = where(library, found.pc)
    kind = _KINDS.get(found.kind, "fault")
    what, notes = _told(library, found, tensors, seconds)
    block, thread = _triple(found.block), _triple(found.thread)
    return KernelFault(kernel, kind, what, file, line, block, thread, notes)


def where(library: Library, pc: int) -> tuple[str | None, int | None]:
    """The author's file and line of a place in the code: of inlined calls, the innermost that is known to be the
    author's, else the innermost that is not the emulator's."""
    tool = shutil.which("addr2line")
    if tool is None or not pc:
        return None, None
    command = [tool, "-i", "-e", str(library.path), hex(pc - library.base)]
    told = subprocess.run(command, capture_output=True, text=True).stdout
    places = _places(told)
    for file, line in places:
        if file in library.author_files:
            return file, line
    return places[0] if places else (None, None)


def _places(told: str) -> list[tuple[str, int]]:
    """What addr2line tells, less the emulator's own headers."""
    found = []
    for text in told.splitlines():
        file, _, number = text.split(" (discriminator")[0].rpartition(":")
        inside = file.startswith(SETTLED[INCLUDE])
        if file.startswith(SETTLED[OPSMITH_INCLUDE]):
            file = str(OPSMITH_INCLUDE) + file.removeprefix(SETTLED[OPSMITH_INCLUDE])
        label = file.find("/<cuda_source ")  # a text whose place is not known: the compiler takes its label for a file
        file = file[label + 1 :] if label >= 0 else file
        if number.isdigit() and int(number) and not inside and file != "??" and os.path.basename(file) != "<opsmith>":
            found.append((file, int(number)))
    return found


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
        return f"the launch has not ended within {seconds:g} s; {words}", _waits(library, found)
    if found.kind == 10:
        return words if words.startswith("__") else f"assert({words})", []  # __trap(), __builtin_assume(...)
    if found.kind == 11:
        return f"it writes to {_variable(library, found, tensors)}", []
    if found.kind == 12:
        return f"it reaches for memory that is not there (address {found.address:#x})", [
            "checks=True tells how far from which tensor."
        ]
    if found.kind == 16:
        return "the stack of the thread, 1 MiB, is used up", [
            "A recursion does not end, or local arrays are too large: a GPU has 512 KiB for a thread."
        ]
    if found.kind == 17:
        return "it comes to a place that the compiler has taken for one that cannot be reached", [
            "Undefined behaviour leads there: a null pointer, say, or a function that ends without its return."
        ]
    if found.kind == 18:
        return "a C++ exception leaves the kernel" + (f": {words}" if words else ""), [
            "Code for a GPU cannot throw; nvcc refuses it."
        ]
    if found.kind == 19:
        return f"it {does} {found.size} bytes {_allocated(library, found, 'freed')}", []
    if found.kind == 20:
        if found.region == _ALLOCATED:
            return f"it frees memory {_freed_before(library, found)}", []
        return f"it frees an address ({found.address:#x}) that neither malloc nor new has given", []
    return "an integer is divided by zero", []


def _allocated(library: Library, found: Fault, done: str) -> str:
    """Where in a piece of memory that a kernel has allocated, and where that was done to it."""
    place = f"at byte {found.offset} of" if found.offset >= 0 else f"that begin {-found.offset} bytes before"
    file, line = where(library, found.other.pc)
    at = f" at {file}:{line}" if file else ""
    return f"{place} the {found.words.decode()} bytes that the kernel has {done}{at}"


def _freed_before(library: Library, found: Fault) -> str:
    file, line = where(library, found.other.pc)
    return f"that has been freed before{f', at {file}:{line}' if file else ''}"


def _beside(library: Library, found: Fault, tensors: Sequence[str]) -> str:
    if found.region == _ALLOCATED:
        return _allocated(library, found, "allocated")
    if found.region < 0:
        return "of memory that no tensor of the launch holds"
    if found.region >= len(tensors):
        return f"at byte {found.offset} of {_variable(library, found, tensors)}"
    name = tensors[found.region]
    if found.offset < 0:
        return f"that begin {-found.offset} bytes before {name}"
    return f"at byte {found.offset} of {name}"


def _variable(library: Library, found: Fault, tensors: Sequence[str]) -> str:
    number = found.region - len(tensors)
    if number >= len(library.variables):
        return "the arguments of the launch"
    return f"the variable {library.names[library.variables[number].number]}"


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
        where_told = f"{file}:{line}" if file else "a place that is not recorded"
        notes.append(f"  {threads} at {where_told}, the first of them thread {_triple(place.thread)}")
    return notes
