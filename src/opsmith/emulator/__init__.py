"""Running GPU kernels on the CPU: `opsmith.emulate`.

Each language has its own way. CUDA C++ is compiled for the CPU, by what is here; Triton and Numba have an interpreter
and a simulator of their own, used by kernels/.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..kernels import emulation
from ..operator.registry import detour_every_op, registry

if TYPE_CHECKING:
    from ..kernels.cuda_source.launch import Launch
    from ..kernels.cuda_source.source import CudaSource
    from ..kernels.extension import ExtensionFunction
    from ..kernels.native import NativeFunction


@contextlib.contextmanager
def emulate(checks: bool = True, seed: int | None = 0, timeout: float = 60.0) -> Iterator[None]:
    """Inside, this thread's ops run their GPU kernels on CPU tensors, backward included; no GPU is needed.

    >>> with opsmith.emulate():
    ...     y = my_op(torch.randn(1000))  # by the kernel registered for "cuda"

    That holds for the kernels of pointwise ops, of opsmith.cuda_source, of opsmith.extension where opsmith::launch
    starts them, and those written in Triton and Numba; an op without one runs as ever on the CPU, and so does torch.ops
    called directly. The kernel is the one that `using` has
    picked, else the op's default. A launch of a CudaSource on CPU tensors, `cu.name[grid, block](x)`, is emulated too.
    A block of a grid takes milliseconds in Triton and Numba: try small tensors.

    Args:
        checks: each load and store must lie within a tensor of the launch (Numba's simulator checks that in any case);
            in CUDA C++ barriers, shuffles, races, alignment and overflow are watched as well. What is found raises
            (opsmith.KernelFault for CUDA C++). Without, a kernel does what it does.
        seed: the blocks of a grid run in an order drawn from it, since a GPU promises none: a kernel whose result
            changes with the seed has a race. None for the order of their numbers. In CUDA C++ the order of a block's
            warps and lanes is drawn as well.
        timeout: seconds after which a launch of CUDA C++ is said to hang, and where its threads wait.
    """
    detour_every_op(1)
    try:
        for op in list(registry.values()):
            op._families.emulate()
        with emulation.entered(emulation.Settings(checks, seed, timeout)):
            yield
    finally:
        detour_every_op(-1)


class _CudaEmulator:
    """kernels.emulation.CudaEmulator, imported when it is first needed."""

    def launch(self, launch: Launch, args: Sequence[Any]) -> None:
        from . import cuda_sources

        cuda_sources.run(launch, args)

    def set_constant(self, source: CudaSource, name: str, value: Any) -> None:
        from . import cuda_sources

        cuda_sources.set_constant(source, name, value)

    def function(self, function: ExtensionFunction) -> NativeFunction:
        from .extensions import EmulatedFunction

        return EmulatedFunction(function)


emulation.set_cuda_emulator(_CudaEmulator())
