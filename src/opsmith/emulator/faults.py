"""From a fault that the runtime recorded to an error with the author's line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import KernelFault
from .assembly import INCLUDE, OPSMITH_INCLUDE, SETTLED
from .library import Library
from .structures import ALLOCATED, Fault

Line = tuple[str | None, int | None]
"""A file and a line of it; None where they are not known."""


class _Message(NamedTuple):
    """The message for a kind of fault: templates over the properties of a _Description."""

    kind: str
    what: str
    advice: str = ""


_MESSAGES = {  # by FaultKind of native/interface.h
    1: _Message("out of bounds", "it {f.accesses} {f.global_place}"),
    2: _Message("out of bounds", "it {f.accesses} {f.shared_place}"),
    3: _Message(
        "misaligned access",
        "it accesses {f.size} bytes at an address that is not a multiple of {f.size}",
        "A GPU refuses it. Read such data element by element, or align each row to {f.size} bytes.",
    ),
    4: _Message(
        "uninitialised shared memory",
        "it reads {f.size} bytes of shared memory that no thread of the block has written",
    ),
    5: _Message(
        "partial barrier", "every thread of the block must reach the same __syncthreads(): {f.detail}", "{f.waits}"
    ),
    6: _Message("inactive lane", "with mask {f.mask} {f.detail}", "{f.waits}"),
    7: _Message("data race", "it {f.does} {f.raced_place}, and nothing orders the two", "{f.race_advice}"),
    8: _Message(
        "signed overflow",
        "the {f.detail} overflows its signed type, which is undefined behaviour",
        "Compute indices in 64 bits: static_cast<long long>(a) * b.",
    ),
    9: _Message("hang", "the launch has not ended within {f.seconds:g} s; {f.detail}", "{f.waits}"),
    10: _Message("failed assertion", "{f.assertion}"),
    11: _Message("write to a constant", "it writes to {f.variable}"),
    12: _Message(
        "bad memory access",
        "it accesses memory that does not exist (address {f.address})",
        "With checks=True the error names the tensor that is nearest.",
    ),
    13: _Message("division by zero", "an integer is divided by zero"),
    14: _Message("out of bounds", "it {f.does} through a null pointer (address {f.address})"),
    16: _Message(
        "stack overflow",
        "the stack of the thread, 1 MiB, is used up",
        "A recursion does not end, or local arrays are too large: a GPU has 512 KiB for a thread.",
    ),
    17: _Message(
        "illegal instruction",
        "it reaches code that the compiler considered unreachable",
        "Undefined behaviour leads there, such as a null pointer or a function that ends without its return.",
    ),
    18: _Message(
        "C++ exception",
        "a C++ exception leaves the kernel{f.exception}",
        "Code for a GPU cannot throw; nvcc refuses it.",
    ),
    19: _Message("use after free", "it {f.accesses} {f.freed_place}"),
    20: _Message("bad free", "it frees {f.freed}"),
    21: _Message("partial barrier", "every thread of the cluster must come to its barrier: {f.detail}", "{f.waits}"),
    22: _Message("absent block", "{f.absence}", "{f.absence_advice}"),
}
_ABSENCES = {  # by the mask of the fault: Absence of native/neighbours.h
    0: (
        "{f.accesses} of the shared memory of {f.detail}, which has no such block",
        "Ranks are counted from 0 to cluster.num_blocks() - 1.",
    ),
    1: (
        "{f.accesses} of the shared memory of {f.owner}, which may not have begun",
        "Call cluster.sync() before the first access to another block's shared memory.",
    ),
    2: (
        "{f.accesses} of the shared memory of {f.owner}, which has ended",
        "Call cluster.sync() after the last access to another block's shared memory.",
    ),
    3: (
        "{f.accesses} of the shared memory of {f.owner}, which may have ended by then",
        "Call cluster.sync() after the last access to another block's shared memory.",
    ),
    4: ("asks for the place in another block of an address that is not in shared memory", ""),
}


def fault_of(kernel: str, library: Library, fault: Fault, tensors: Sequence[str], seconds: float) -> KernelFault:
    """The error for a fault. `tensors` describes the regions that are tensors, in their order: 'x, float32 [64]'."""
    file, line = where(library, fault.pc)
    message, described = _MESSAGES[fault.kind], _Description(library, fault, tensors, seconds)
    what, advice = message.what.format(f=described), message.advice.format(f=described)
    block, thread = fault.block.triple, fault.thread.triple
    return KernelFault(kernel, message.kind, what, file, line, block, thread, [advice] if advice else [])


def where(library: Library, pc: int) -> Line:
    """The author's file and line of an address in the code: of inlined calls, the innermost in a file that is known to
    be the author's, else the innermost outside the emulator's headers."""
    tool = shutil.which("addr2line")
    if tool is None or not pc:
        return None, None
    command = [tool, "-i", "-e", str(library.path), hex(pc - library.base)]
    places = _places(subprocess.run(command, capture_output=True, text=True).stdout)
    for file, line in places:
        if file in library.author_files:
            return file, line
    return places[0] if places else (None, None)


def _places(output: str) -> list[tuple[str, int]]:
    """The places that addr2line prints, without the emulator's own headers."""
    found = []
    for text in output.splitlines():
        file, _, number = text.split(" (discriminator")[0].rpartition(":")
        inside = file.startswith(SETTLED[INCLUDE])
        if file.startswith(SETTLED[OPSMITH_INCLUDE]):
            file = str(OPSMITH_INCLUDE) + file.removeprefix(SETTLED[OPSMITH_INCLUDE])
        # Of a text whose place is not known, the compiler takes the label for a file.
        label = file.find("/<cuda_source ")
        file = file[label + 1 :] if label >= 0 else file
        if number.isdigit() and int(number) and not inside and file != "??" and os.path.basename(file) != "<opsmith>":
            found.append((file, int(number)))
    return found


class _Description:
    """The facts of a fault as text; each is computed when a message needs it."""

    def __init__(self, library: Library, fault: Fault, tensors: Sequence[str], seconds: float) -> None:
        self.library, self.fault, self.tensors, self.seconds = library, fault, tensors, seconds
        self.size = fault.size
        self.mask, self.address = f"{fault.mask:#010x}", f"{fault.address:#x}"
        self.does = "writes" if fault.is_write else "reads"
        self.accesses = f"{self.does} {fault.size} bytes"
        self.detail = fault.detail.decode(errors="replace")
        self.exception = f": {self.detail}" if self.detail else ""
        # Those of __trap() and __builtin_assume(...) are complete.
        self.assertion = self.detail if self.detail.startswith("__") else f"assert({self.detail})"

    @property
    def global_place(self) -> str:
        fault = self.fault
        if fault.region == ALLOCATED:
            return self._allocated("allocated")
        if fault.region < 0:
            return "of memory outside every tensor of the launch"
        name = self.tensors[fault.region] if fault.region < len(self.tensors) else self.variable
        return self._bytes_of(name)

    @property
    def freed_place(self) -> str:
        return self._allocated("freed")

    @property
    def freed(self) -> str:
        if self.fault.region != ALLOCATED:
            return f"an address ({self.address}) that neither malloc nor new has returned"
        file, line = where(self.library, self.fault.other.pc)
        return f"memory that has been freed before{f', at {file}:{line}' if file else ''}"

    @property
    def variable(self) -> str:
        number = self.fault.region - len(self.tensors)
        if number >= len(self.library.variables):
            return "the arguments of the launch"
        return f"the variable {self.library.names[self.library.variables[number].number]}"

    @property
    def shared_place(self) -> str:
        fault, library = self.fault, self.library
        of_block = f" of {self.owner}" if fault.has_other else ""
        if fault.region == -1:
            place = self._bytes_of(f"the dynamic shared memory{of_block}")
            return place if fault.offset < 0 else f"{place}, of which the launch has {self.detail}"
        if fault.region <= -3:
            variable = library.shared[-3 - fault.region]
            place = self._bytes_of(f"{library.names[variable.number]}{of_block}")
            return place if fault.offset < 0 else f"{place}, which has {variable.end - variable.begin}"
        return "of shared memory outside every variable"

    @property
    def owner(self) -> str:
        """The block whose shared memory is accessed."""
        return f"block {self.fault.other.block.triple}"

    @property
    def absence(self) -> str:
        return f"it {_ABSENCES[self.fault.mask][0].format(f=self)}"

    @property
    def absence_advice(self) -> str:
        return _ABSENCES[self.fault.mask][1]

    @property
    def raced_place(self) -> str:
        fault, other = self.fault, self.fault.other
        place = f"a word of the shared memory of block {self.detail}" if self.detail else "a word of shared memory"
        if fault.region >= 0:
            name = self.tensors[fault.region] if fault.region < len(self.tensors) else "memory"
            place = f"byte {fault.offset} of {name}"
        file, line = where(self.library, other.pc)
        return f"{place}, which block {other.block.triple}, thread {other.thread.triple} also accesses at {file}:{line}"

    @property
    def race_advice(self) -> str:
        if self.detail:  # of the block whose shared memory it is, in a cluster
            return "Put cluster.sync() between them, or use atomics."
        if self.fault.block.triple != self.fault.other.block.triple:
            return "Blocks run in any order: use atomics, or give each block its own place."
        return "Put __syncthreads() (within a warp: __syncwarp()) between them, or use atomics."

    @property
    def waits(self) -> str:
        """A line for each place where threads wait."""
        lines = []
        for place in self.fault.wait[: self.fault.waits]:
            file, line = where(self.library, place.pc)
            at = f"{file}:{line}" if file else "an unknown line"
            threads = "1 thread waits" if place.count == 1 else f"{place.count} threads wait"
            block = place.block.triple
            of_block = f" of block {block}" if block != self.fault.block.triple else ""
            lines.append(f"  {threads} at {at}, the first of them thread {place.thread.triple}{of_block}")
        return "\n".join(lines)

    def _allocated(self, done: str) -> str:
        """A place in memory that the kernel has allocated, with the line that allocated or freed it."""
        file, line = where(self.library, self.fault.other.pc)
        at = f" at {file}:{line}" if file else ""
        return self._bytes_of(f"the {self.detail} bytes that the kernel has {done}{at}")

    def _bytes_of(self, memory: str) -> str:
        offset = self.fault.offset
        return f"at byte {offset} of {memory}" if offset >= 0 else f"that begin {-offset} bytes before {memory}"
