"""A copy to the host by the driver, which torch does not see."""

from __future__ import annotations

import ctypes

from torch import Tensor

from ._doubled import declared, launch


def kernel(x: Tensor) -> Tensor:
    first = ctypes.c_float()
    ctypes.CDLL("libcuda.so.1").cuMemcpyDtoH_v2(ctypes.byref(first), ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(4))
    return launch(x) if first.value < 1e30 else x * 2


op = declared(__name__, kernel)
