"""`make compat`: generated CUDA kernels in the oldest NVRTC that a supported torch brings, for CUDA 12 and 13.

`make test` compiles them with the newest alone, and what it accepts is more: it takes a lambda for a device function.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from opsmith import Op, ops
from opsmith.generate import emit_cuda
from opsmith.generate.generation import LoopGeneration
from opsmith.generate.source import texts

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "compat"
OLDEST = {"12": "nvidia-cuda-nvrtc-cu12==12.6.77", "13": "nvidia-cuda-nvrtc==13.0.48"}
"""By CUDA's major version: of the oldest torch, 2.11."""


class Nvrtc:
    def __init__(self, requirement: str) -> None:
        place = BUILD / requirement.replace("==", "-")
        if not place.exists():
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
            subprocess.run([*pip, "install", "--no-deps", "--target", str(place), requirement], check=True)
        (library,) = (path for path in place.rglob("libnvrtc.so.*") if "alt" not in path.name)
        (builtins,) = (path for path in place.rglob("libnvrtc-builtins.so.*") if "alt" not in path.name)
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(library))

    def log_of_failure(self, text: str) -> str:
        """Empty if the text compiles."""
        program = ctypes.c_void_p()
        given = ["--gpu-architecture=sm_90", *emit_cuda.options(text), f"--include-path={ROOT}/src/opsmith/include"]
        options = (ctypes.c_char_p * len(given))(*[option.encode() for option in given])
        self._library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
        failed = self._library.nvrtcCompileProgram(program, len(given), options)
        size = ctypes.c_size_t()
        self._library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self._library.nvrtcGetProgramLog(program, log)
        self._library.nvrtcDestroyProgram(ctypes.byref(program))
        return log.value.decode() if failed else ""


def sources() -> Iterator[tuple[str, str]]:
    """(name, text) of the kernels of each shipped op's first and last sample."""
    for op in (getattr(ops, name) for name in ops.__all__):
        for dtype in (torch.float32, torch.bfloat16) if op.is_generated else ():
            samples = op.samples_for("cpu", dtype)
            for sample in (samples[0], samples[-1]):
                values = op.signature.bind_call(sample.args, dict(sample.kwargs))
                yield from of_call(op, values)


def of_call(op: Op, values: list[object]) -> Iterator[tuple[str, str]]:
    generation = op._families.generation
    assert isinstance(generation, LoopGeneration)
    for backward in (False,) if op.signature.mutated else (False, True):
        yield from texts(generation.compiler, "cuda", values, backward).items()


def main() -> int:
    found = dict.fromkeys(sources())
    for major, requirement in OLDEST.items():
        nvrtc = Nvrtc(requirement)
        print(f"NVRTC of CUDA {major} ({requirement}): {len(found)} kernels", flush=True)
        for name, text in found:
            if log := nvrtc.log_of_failure(text):
                print(f"{name}:\n{log}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
