"""A Triton kernel as an op: on a GPU, seen by torch.compile, and on any machine in Triton's interpreter."""

import torch
import triton
import triton.language as tl

import opsmith
from opsmith.checks import compare_samples


# [kernel]
@triton.jit
def softmax_kernel(x, out, columns, WIDTH: tl.constexpr):  # one program per row, held in registers
    place = tl.arange(0, WIDTH)
    row = tl.program_id(0).to(tl.int64) * columns
    value = tl.load(x + row + place, mask=place < columns, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row + place, power / tl.sum(power, axis=0), mask=place < columns)


@opsmith.op("examples::row_softmax")
def row_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


@row_softmax.register_kernel("cuda", inline=True)  # inline: torch.compile sees the kernel, and not only the op
def launch(x, mistake=0):
    if x.ndim == 0 or x.numel() == 0 or x.dtype is torch.float64:
        return NotImplemented  # the reference runs
    out, columns = torch.empty_like(x), x.shape[-1]
    width = triton.next_power_of_2(columns)
    softmax_kernel[(x.numel() // columns,)](x, out, columns + mistake, WIDTH=width)
    return out


# [kernel]
@row_softmax.register_samples
def _(device, dtype):
    yield opsmith.Sample(args=(torch.randn(4, 50, device=device, dtype=dtype),), name="4x50")
    yield opsmith.Sample(args=(torch.randn(50, 4, device=device, dtype=dtype).t(),), name="transposed")


# [emulate]
with opsmith.emulate():  # CPU tensors, by the kernel for "cuda"; no GPU and no environment variable
    for comparison in compare_samples(row_softmax):
        print(f"{'ok' if comparison else 'WRONG':5} {comparison.what}")
# [emulate]
row_softmax.register_kernel("cuda", lambda x: launch(x, mistake=1), name="careless")
try:
    with opsmith.emulate(), row_softmax.using("careless"):
        row_softmax(torch.randn(4, 50))
except opsmith.OpsmithError as error:
    print("refused:", error)
if torch.cuda.is_available():
    x = torch.randn(64, 1000, device="cuda")
    torch.testing.assert_close(torch.compile(row_softmax, fullgraph=True)(x), torch.softmax(x, -1))
    print("compiled, with the kernel inside")
