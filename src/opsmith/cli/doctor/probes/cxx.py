"""Probes: the C++ compiler makes a library that loads and computes; Python's headers compile into one."""

from __future__ import annotations

import ctypes
import os
import platform

from ....errors import CompilerBrokenError, CompilerNotFoundError, CompilerTooOldError
from ....toolchain import compile_shared_library, find_cxx, load_library, python_headers
from ..._screen import tilde
from ..finding import Finding
from .workshop import workshop

# A range and a span: C++20 from both the compiler and its library.
SQUARES = """#include <numeric>
#include <span>
#include <vector>
extern "C" __attribute__((visibility("default"))) long squares(long n) {
  std::vector<long> values(n);
  std::iota(values.begin(), values.end(), 1);
  long sum = 0;
  for (long value : std::span(values)) sum += value * value;
  return sum;
}
"""

VERSION = """#include <Python.h>
extern "C" __attribute__((visibility("default"))) const char* version() { return PY_VERSION; }
"""


def compiler() -> Finding:
    try:
        found = find_cxx()
        with workshop():
            squares = load_library(compile_shared_library("doctor", text=SQUARES, abi="plain")).squares
            squares.restype = ctypes.c_long
            result = squares(ctypes.c_long(10))
    except (CompilerNotFoundError, CompilerBrokenError, CompilerTooOldError) as error:
        return Finding.of_error(error, _fix(missing=isinstance(error, CompilerNotFoundError)))
    if result != 385:
        wrong = f"{found}: the sum of ten squares is 385, and its library gives {result}"
        return Finding("broken", wrong, fix=_fix(missing=False))
    return Finding("ok", f"{found.kind} {found.version} ({tilde(found.path)})", "compiled, loaded and ran a library")


def headers() -> Finding:
    directory = python_headers()
    what = f"Python.h in {tilde(directory)}"
    try:
        find_cxx()
    except (CompilerNotFoundError, CompilerBrokenError, CompilerTooOldError):
        return Finding("broken", f"{what}, but no C++ compiler works", fix="see the C++ compiler's line")
    with workshop():
        path = compile_shared_library("doctor_headers", text=VERSION, include_dirs=[directory], abi="plain")
        version = load_library(path).version
        version.restype = ctypes.c_char_p
        told = version().decode()
    if told != platform.python_version():
        return Finding("broken", f"{what} is of Python {told}, while this is {platform.python_version()}")
    return Finding("ok", what, "compiled and loaded a library with it")


def _fix(*, missing: bool) -> str:
    if os.environ.get("CXX"):
        return "unset CXX, or set it to a g++ or clang++ that works"
    return "apt-get install g++" if missing else "apt-get install --reinstall g++, or set CXX to another compiler"
