"""Numba kernels on CPU tensors: Numba's own simulator, for kernels that were made to be compiled.

NUMBA_ENABLE_CUDASIM=1 makes @cuda.jit itself give a simulated function, and has to be set before numba is imported.
Here the Python function of a kernel that is compiled otherwise runs in a copy, in which `cuda` is the simulator's and
device functions are the Python functions they are made of. Each thread of a block is a thread of Python's.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from ..errors import EmulationError, OutOfBoundsError
from .emulation import Grid, state
from .substitution import substituted

if TYPE_CHECKING:
    from .numba import NumbaKernel


def simulate(kernel: NumbaKernel, grid: Grid, block: Grid, shared: int, args: Sequence[Any]) -> None:
    from numba.cuda.simulator.kernel import BlockManager

    arrays = [_array(each) if isinstance(each, torch.Tensor) else each for each in args]
    for place in state.settings.order(grid):
        # A block of its own: shared memory is not carried from one to the next.
        function = _simulated(kernel.py_func, grid, block, shared)
        try:
            BlockManager(function, grid, block, False).run(place, *arrays)
        except IndexError as error:
            raise OutOfBoundsError(str(kernel), str(error), "if i < x.size") from error
        except Exception as error:
            raise EmulationError(str(kernel), f"{type(error).__name__}: {error}") from error


def _simulated(function: Any, grid: Grid, block: Grid, shared: int) -> Any:
    from numba import cuda
    from numba.cuda.simulator.kernelapi import FakeCUDAModule

    module = FakeCUDAModule(grid, block, shared)

    def wanted(value: Any) -> bool:
        return value is cuda or isinstance(getattr(value, "py_func", None), FunctionType)

    def replacement(value: Any) -> Any:
        return module if value is cuda else substituted(value.py_func, wanted, replacement)

    return substituted(function, wanted, replacement)


def _array(tensor: torch.Tensor) -> Any:
    """The tensor's own memory, as a kernel sees an array."""
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray, FakeWithinKernelCUDAArray

    return FakeWithinKernelCUDAArray(FakeCUDAArray(tensor.detach().numpy()))
