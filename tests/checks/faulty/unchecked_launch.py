"""One block per row along y, where a grid has at most 65535; the result of the launch is not checked."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from opsmith.launch.driver import driver

from ._doubled import THREADS, cu, declared


def kernel(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    rows, index = x.shape[0], x.get_device()
    function, _ = cu._function("doubled_rows", index)
    frame = function.plan.pack((x, y, x.numel() // rows), index)
    stream = torch.cuda.current_stream().cuda_stream
    shape = driver().configuration((1, rows, 1), (THREADS, 1, 1), 0, stream)
    driver().launch_kernel(ctypes.addressof(shape), function.handle, frame[1], None)
    return y


op = declared(__name__, kernel)
