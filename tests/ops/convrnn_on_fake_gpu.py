"""Run by test_convrnn_launch.py in a process of its own, with a fake driver: prints what the driver is given, as JSON.

Its argument: the directory with the libraries that stand for the driver and for torch's CUDA part.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import torch
from kernels.fake_cuda import FakeCuda

import opsmith
from opsmith.launch.driver import substituted
from opsmith.ops.convrnn.op import source

ctypes.CDLL(f"{sys.argv[1]}/libtorch_cuda.so", mode=ctypes.RTLD_GLOBAL)
HERE = Path(__file__).parent
CODE = Path(opsmith.__file__).parent / "ops" / "convrnn" / "launch.cpp"
WRAPPER = Path(sys.argv[1], "convrnn_on_gpu.cpp")
WRAPPER.write_text(f'#include "as_on_gpu.h"\n#include "{CODE}"\nOPSMITH_TEST_INDEX\n')
ext = opsmith.extension(
    "convrnn_on_fake_gpu", WRAPPER, kernels=source, extra_cflags=[f"-I{HERE.parent / 'kernels'}", f"-I{CODE.parent}"]
)
forward = ext.convrnn_cuda_forward.as_operator(
    lambda f: f"{f}(Tensor x, Tensor kernel, Tensor hidden, str activation) -> Tensor"
)
backward = ext.convrnn_cuda_backward.as_operator(
    lambda f: f"{f}(Tensor? g, Tensor x, Tensor kernel, Tensor hidden, str a, Tensor output, bool[] needs) -> Tensor[]"
)
index = ext.index.as_operator(lambda f: f"{f}(int index) -> int")
cuda = FakeCuda()


def drawn(batch: int, steps: int, width: int, taps: int, dtype: torch.dtype) -> list[torch.Tensor]:
    shapes = ((batch, steps, width), (1, 1, taps), (batch, width))
    return [torch.zeros(shape, dtype=dtype) for shape in shapes]


def shapes() -> list[list[object]]:
    """Of each call the grid, the block and the shared memory of its forward and of its backward."""
    found = []
    for given in (
        (4, 64, 64, 3, torch.float32), (600, 5, 64, 3, torch.float16), (2, 6, 5000, 15, torch.bfloat16),
        (3, 9, 300, 9, torch.float64), (5, 7, 61, 5, torch.float16),
    ):  # fmt: skip
        x, kernel, hidden = drawn(*given)
        cuda._library.fake_reset(0x1000)
        y = forward.call(x, kernel, hidden, "tanh")
        backward.call(x, x, kernel, hidden, "tanh", y, [True, False, False])
        found.append([[*each.grid[:1], *each.block[:2], each.shared] for each in cuda.launches])
    return found


def counters() -> dict[str, list[int]]:
    """The addresses of the counters on two GPUs, each with a stream of its own, and during a capture."""
    x, kernel, hidden = drawn(4, 3, 64, 3, torch.float32)
    found: dict[str, list[int]] = {}

    kept: list[object] = []

    def launched(capturing: bool) -> int:
        cuda._library.fake_reset(0x1000)
        cuda.capture(capturing)
        # What a call allocates is kept until the next one has allocated its own.
        kept.append(backward.call(x, x, kernel, hidden, "relu", x, [True, True, True]))
        (launch,) = cuda.launches
        return int.from_bytes(launch.parameters[9], "little")

    for name, where, capturing in (
        ("first", 0, False), ("second", 1, False), ("again", 0, False), ("captured", 0, True)
    ):  # fmt: skip
        index.call(where)
        found[name] = [launched(capturing) for _ in range(2)]
    return found


if __name__ == "__main__":
    with substituted(cuda):
        cuda.fake.count = 2
        print(json.dumps({"shapes": shapes(), "counters": counters()}))
