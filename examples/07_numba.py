"""A Numba kernel as an op: zero-copy on torch's current stream, and on any machine in Numba's simulator."""

import torch
from numba import cuda

import opsmith
from opsmith.checks import compare_samples


# [kernel]
@opsmith.numba_kernel  # launches on torch's stream, where cuda.jit alone launches on Numba's own
@cuda.jit
def smooth_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        left = x[i - 1] if i > 0 else 0.0
        right = x[i + 1] if i + 1 < x.size else 0.0
        out[i] = (left + x[i] + right) / 3


@opsmith.op("examples::smooth")
def smooth(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (1, 1))
    return (padded[:-2] + x + padded[2:]) / 3


@smooth.register_kernel("cuda", layout="strided")  # no copy of a strided tensor: the kernel is given its strides
def launch(x):
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented  # the reference runs
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    smooth_kernel[-(-x.numel() // 128), 128](x, out)
    return out


@smooth.register_backward("cuda", layout="strided")  # what spreads to its neighbours is gathered from them
def _(grads, *, needs):
    return launch(grads[0])


# [kernel]
@smooth.register_samples
def _(device, dtype):
    for name, x in {"200": torch.randn(200), "every third": torch.randn(60)[::3], "empty": torch.randn(0)}.items():
        yield opsmith.Sample(args=(x.to(device, dtype),), name=name)


# [emulate]
with opsmith.emulate():  # CPU tensors, by the kernel for "cuda"; no GPU and no environment variable
    for comparison in compare_samples(smooth):
        print(f"{'ok' if comparison else 'WRONG':5} {comparison.what}")
# [emulate]
if torch.cuda.is_available():
    assert all(compare_samples(smooth, "cuda"))
bare = smooth_kernel.kernel
try:
    smooth.register_kernel("cuda", lambda x: bare[1, 128](x, torch.empty_like(x)))
except opsmith.OpsmithError as error:
    print("refused:", error)
