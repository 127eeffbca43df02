"""Probes: the C++ compiler, Python's headers, NVRTC and nvcc each compile a small source, which then runs if it can.

They compile with an empty cache, since a cached result proves nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ....errors import (
    CompilerBrokenError,
    CompilerNotFoundError,
    CompilerTooOldError,
    CudaHeadersNotFoundError,
    CudaVersionMismatchError,
    NvrtcNotFoundError,
)
from ....toolchain import (
    CudaProgram,
    compile_shared_library,
    compile_with_nvcc,
    find_cxx,
    find_nvcc,
    find_nvrtc,
    load_library,
    python_headers,
)
from ....toolchain.find import torch_cuda_version
from ..._processes import variable
from ..._screen import tilde
from ..finding import Finding
from .driver import Driver, gpus

# C++20 in both the compiler and its library.
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
KERNEL = """#include <cuda_fp16.h>
extern "C" __global__ void doctor(const float* x, float* y, int n) {
  const int i = threadIdx.x;
  if (i < n) y[i] = __half2float(__hadd(__float2half(x[i]), __float2half(0.5f)));
}
"""
CACHE = "OPSMITH_CACHE_DIR"
DEFAULT_ARCH = "sm_80"  # supported by every toolkit of CUDA 12 and 13


@contextlib.contextmanager
def empty_cache() -> Iterator[Path]:
    """A directory for sources; inside the context, opsmith's cache is empty."""
    with tempfile.TemporaryDirectory(prefix="opsmith-doctor-") as directory, variable(CACHE, f"{directory}/cache"):
        yield Path(directory)


def compiler() -> Finding:
    try:
        found = find_cxx()
        with empty_cache():
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
    with empty_cache():
        path = compile_shared_library("doctor_headers", text=VERSION, include_dirs=[directory], abi="plain")
        version = load_library(path).version
        version.restype = ctypes.c_char_p
        found = version().decode()
    if found != platform.python_version():
        return Finding("broken", f"{what} is of Python {found}, and this is {platform.python_version()}")
    return Finding("ok", what, "compiled and loaded a library with it")


def _fix(*, missing: bool) -> str:
    if os.environ.get("CXX"):
        return "unset CXX, or set it to a g++ or clang++ that works"
    return "apt-get install g++" if missing else "apt-get install --reinstall g++, or set CXX to another compiler"


def nvrtc() -> Finding:
    try:
        found = find_nvrtc()
        with empty_cache():
            proof = _prove(CudaProgram(KERNEL, arch=_arch(), name="doctor.cu").compile().path)
    except (NvrtcNotFoundError, CudaHeadersNotFoundError, CudaVersionMismatchError) as error:
        major = (torch_cuda_version() or "13").split(".")[0]
        return Finding.of_error(error, f"pip install 'opsmith[cuda{major}]'")
    return Finding("ok", f"{found.version} ({_origin(found.path)})", proof)


def nvcc() -> Finding:
    found = find_nvcc()
    what = f"{found.version} ({tilde(found.path)})"
    with empty_cache() as directory:
        source = directory / "doctor.cu"
        source.write_text(KERNEL)
        try:
            return Finding("ok", what, _prove(compile_with_nvcc("doctor", source, arch=_arch())))
        except CompilerNotFoundError:
            return Finding("broken", f"{what}, but no C++ compiler, which nvcc needs", fix="apt-get install g++")


def _origin(library: Path) -> str:
    """Which of several toolkits was found; a wheel's path is long and says nothing."""
    in_wheel = any(Path(entry) in library.parents for entry in sys.path if entry)
    return "from its wheel" if in_wheel else tilde(library.parent)


def _arch() -> str:
    found = gpus()
    return found[0].arch if found else DEFAULT_ARCH


def _prove(cubin: Path) -> str:
    if not gpus():
        return "compiled a kernel with cuda_fp16.h"
    results = Driver().launch(cubin, "doctor", [0.0, 1.0, 2.0])
    if results != [0.5, 1.5, 2.5]:
        raise ArithmeticError(f"the kernel should give [0.5, 1.5, 2.5] and gives {results}")
    return "compiled and ran a kernel with cuda_fp16.h"
