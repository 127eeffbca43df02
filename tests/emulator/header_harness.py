"""Compiles kernel text with the emulator's headers and runs it on numpy arrays: what the tests of headers need."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

import opsmith
from opsmith.emulator import library
from opsmith.emulator.structures import Dim, Fault, Launch, Region, array

EMULATOR = Path(opsmith.__file__).parent / "emulator"
INCLUDE = EMULATOR / "include"
COMPILER = ["g++", "-std=c++20", "-x", "c++", "-include", str(INCLUDE / "opsmith_cuda.h"), "-isystem", str(INCLUDE)]

_ENTRY = """
#include <utility>
template <typename Kernel>
struct Entry;
template <typename... Parameters>
struct Entry<void (*)(Parameters...)> {
  template <size_t... I>
  __attribute__((no_sanitize("thread", "undefined"))) static void call(
      void (*kernel)(Parameters...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<Parameters*>(arguments[I])...);
  }
};
#define ENTRY(name)                                                                                                  \\
  extern "C" __attribute__((visibility("default"), no_sanitize("thread", "undefined"))) void entry_##name(           \\
      void** arguments) {                                                                                            \\
    []<typename... P>(void (*kernel)(P...), void** arguments) {                                                      \\
      Entry<void (*)(P...)>::call(kernel, arguments, std::index_sequence_for<P...>());                               \\
    }(&name, arguments);                                                                                             \\
  }
static thread_local char shared_marker;
extern "C" __attribute__((visibility("default"))) void* shared_base() { return &shared_marker; }
"""


class Faulted(Exception):
    """A kernel did what it must not. `kind` is one of native/interface.h's FaultKind."""

    def __init__(self, kind: int, words: str, thread: int, lines: list[int]) -> None:
        super().__init__(f"fault {kind} in thread {thread}, in lines {lines} of the text: {words}")
        self.kind = kind
        self.lines = lines


def compile_text(text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMPILER, *flags, "-"], input=text, capture_output=True, text=True, check=False)


def _runtime() -> tuple[ctypes.CDLL, Path]:
    """The emulator's own runtime: a process must have no second one, for kernels find it by its symbols."""
    return library.runtime(), library.runtime_path()


class Library:
    """The kernels of a text; `library(name, grid, block, *arguments)` runs one."""

    def __init__(self, text: str, directory: Path, *, checks: bool) -> None:
        self._checks = checks
        self._runtime, beside = _runtime()
        names = re.findall(r"__global__ void (\w+)", text)
        serial = len(list(directory.glob("kernels_*.so")))
        target = directory / f"kernels_{serial}.so"
        flags = ["-g", "-fPIC", "-fno-gnu-unique", "-fvisibility=hidden", "-c", "-o", str(target.with_suffix(".o"))]
        instrumented = ["-O1", "-fsanitize=thread", "-fsanitize=signed-integer-overflow,alignment"]
        entries = "".join(f"ENTRY({name})\n" for name in names)
        compiled = compile_text(text + _ENTRY + entries, *flags, *(instrumented if checks else ["-O2"]))
        assert compiled.returncode == 0, compiled.stderr
        subprocess.run(["g++", "-shared", str(target.with_suffix(".o")), "-o", str(target), str(beside)], check=True)
        self._target = target
        self._library = ctypes.CDLL(str(target))
        self._shared = _shared_variables(target) if checks else []

    def __call__(
        self, name: str, grid: int, block: int | Sequence[int], *arguments: Any, seed: int = 0, workers: int = 2
    ) -> None:
        boxes = [
            ctypes.c_void_p(argument.ctypes.data) if isinstance(argument, numpy.ndarray) else ctypes.c_int(argument)
            for argument in arguments
        ]
        arrays = [argument for argument in arguments if isinstance(argument, numpy.ndarray)]
        regions = [Region(array.ctypes.data, array.ctypes.data + array.nbytes, 0, i) for i, array in enumerate(arrays)]
        pointers = (ctypes.c_void_p * len(boxes))(*[ctypes.addressof(box) for box in boxes])
        region_array = array(Region, regions)
        shared_array = array(Region, self._shared)
        threads = [block] if isinstance(block, int) else list(block)
        fault = Fault()
        launch = Launch(
            ctypes.cast(getattr(self._library, f"entry_{name}"), ctypes.c_void_p).value,
            ctypes.addressof(pointers), Dim(grid, 1, 1), Dim(*threads, *[1] * (3 - len(threads))), Dim(1, 1, 1), 0,
            int(self._checks), workers, seed, 20.0, ctypes.addressof(region_array), len(regions),
            ctypes.addressof(shared_array), len(self._shared),
            ctypes.cast(self._library.shared_base, ctypes.c_void_p).value, ctypes.addressof(fault),
        )  # fmt: skip
        kind = self._runtime.opsmith_emulate(ctypes.byref(launch))
        if kind:
            raise Faulted(kind, fault.detail.decode(), fault.thread.x, self._lines(fault.pc))

    def _lines(self, pc: int) -> list[int]:
        """The lines of the author's text that were being executed, innermost first."""
        with open("/proc/self/maps") as maps:
            base = next(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(str(self._target)))
        command = ["addr2line", "-e", str(self._target), "-i", hex(pc - base)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [int(line) for line in re.findall(r"<stdin>:(\d+)", found)]


def _shared_variables(library: Path) -> list[Region]:
    """Where the library's `__shared__` variables lie, from the marker that shared_base tells the address of."""
    listing = subprocess.run(["readelf", "-sW", str(library)], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*\d+:\s+(\w+)\s+(\w+)\s+TLS\s+\w+\s+\w+\s+(?!UND)\w+\s+(\S+)", listing, re.MULTILINE)
    places = {name: (int(value, 16), int(size, 0)) for value, size, name in found}
    marker = next(value for name, (value, _) in places.items() if "shared_marker" in name)
    return [
        Region((value - marker) % 2**64, (value + size - marker) % 2**64, 3, i)
        for i, (name, (value, size)) in enumerate(places.items())
        if "shared_marker" not in name
    ]
