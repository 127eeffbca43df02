"""Run GPU kernels on the CPU: `opsmith.emulate`.

CUDA C++ is compiled for the CPU by this package; Triton has an interpreter and Numba a simulator, used by kernels/.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..kernels import emulation
from ..operator.registry import detour_every_op, registry


@contextlib.contextmanager
def emulate(checks: bool = True, seed: int | None = 0, timeout: float = 60.0) -> Iterator[None]:
    """Inside, this thread's ops run their GPU kernels on CPU tensors, backward included; no GPU is needed.

    >>> with opsmith.emulate():
    ...     y = my_op(torch.randn(1000))  # by the kernel registered for "cuda"

    This holds for the kernels of pointwise ops, of opsmith.cuda_source, of opsmith.extension where opsmith::launch
    starts them, and for those written in Triton and Numba; an op without one runs on the CPU as usual, and so does
    torch.ops called directly. The kernel is the one that `using` has chosen, else the op's default. A launch of a
    CudaSource on CPU tensors, `cu.name[grid, block](x)`, is emulated too. A block of a grid takes milliseconds in
    Triton and Numba: use small tensors.

    Args:
        checks: each load and store must lie within a tensor of the launch (Numba's simulator checks that in any case);
            in CUDA C++ barriers, shuffles, races, alignment and overflow are checked as well. A mistake raises
            (opsmith.KernelFault for CUDA C++). With checks=False, kernels run unchecked.
        seed: the seed of the order in which the blocks of a grid run, since a GPU promises none: a kernel whose result
            changes with the seed has a race. None runs them in the order of their numbers. In CUDA C++ the order of a
            block's warps and lanes depends on it as well.
        timeout: seconds after which a launch of CUDA C++ counts as hanging; the error names where its threads wait.
    """
    detour_every_op(1)
    try:
        for op in list(registry.values()):
            op._families.emulate()
        with emulation.entered(emulation.Settings(checks, seed, timeout)):
            yield
    finally:
        detour_every_op(-1)


def _cuda_emulator() -> emulation.CudaEmulator:
    from . import cuda_sources, extensions

    return emulation.CudaEmulator(
        cuda_sources.run, cuda_sources.set_constant, extensions.EmulatedFunction, cuda_sources.plan_of
    )


emulation.cuda_emulator = _cuda_emulator
