"""The kernels in C++ (kernel.cpp) and CUDA (kernel.cu). torch calls them without Python in between."""

from __future__ import annotations

from pathlib import Path

import opsmith

from .op import my_op, my_op_

# What is saved for backward: `output_1` is total, the second result. The next layer keeps it anyway, so the op adds no
# memory.
SAVED = ("weight", "eps", "output_1")

# Two libraries, so that the one for the CPU needs no nvcc. Each is built when it is first called, and kept on disk.
for device, source in (("cpu", "kernel.cpp"), ("cuda", "kernel.cu")):
    name = f"my_package_my_op_{device}"
    library = opsmith.extension(name, Path(__file__).with_name(source), lazy=True)
    my_op.register_kernel(device, library.forward_of_my_op)
    my_op_.register_kernel(device, library.in_place_of_my_op)
    backward = library.backward_of_my_op
    my_op.register_backward(device, backward, saves=SAVED)
