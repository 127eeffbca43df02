"""Probes: NVRTC and nvcc compile a small kernel with half types, which runs where there is a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

from ....errors import (
    CompilerNotFoundError,
    CudaHeadersNotFoundError,
    CudaVersionMismatchError,
    NvrtcNotFoundError,
)
from ....toolchain import CudaProgram, compile_with_nvcc, find_nvcc, find_nvrtc
from ....toolchain.find import torch_cuda_version
from ..._screen import tilde
from ..cuda_driver import Driver, gpus
from ..finding import Finding
from .workshop import workshop

SOURCE = """#include <cuda_fp16.h>
extern "C" __global__ void doctor(const float* x, float* y, int n) {
  const int i = threadIdx.x;
  if (i < n) y[i] = __half2float(__hadd(__float2half(x[i]), __float2half(0.5f)));
}
"""
DEFAULT_ARCH = "sm_80"  # every toolkit of CUDA 12 and 13 knows it


def nvrtc() -> Finding:
    try:
        found = find_nvrtc()
        with workshop():
            proof = _prove(CudaProgram(SOURCE, arch=_arch(), name="doctor.cu").compile().path)
    except (NvrtcNotFoundError, CudaHeadersNotFoundError, CudaVersionMismatchError) as error:
        major = (torch_cuda_version() or "13").split(".")[0]
        return Finding.of_error(error, f"pip install 'opsmith[cuda{major}]'")
    return Finding("ok", f"{found.version} ({_origin(found.path)})", proof)


def nvcc() -> Finding:
    found = find_nvcc()
    what = f"{found.version} ({tilde(found.path)})"
    with workshop() as directory:
        source = directory / "doctor.cu"
        source.write_text(SOURCE)
        try:
            return Finding("ok", what, _prove(compile_with_nvcc("doctor", source, arch=_arch())))
        except CompilerNotFoundError:
            return Finding("broken", f"{what}, but no C++ compiler, which nvcc needs", fix="apt-get install g++")


def _origin(library: Path) -> str:
    """A wheel's path is long and tells nothing; that of an installed toolkit tells which one was taken."""
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
