"""Sound ops as strangers write them: one sample each, of 1 to 10^7 elements; tensors, indexes, lists, options, numbers.

None of them was written for the checklist, and nothing in it may be written for one of them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import opsmith
from opsmith import Op, Sample

OPS: dict[str, Op] = {}
EMULATED: dict[str, Op] = {}
"""Those with a CUDA kernel, for the emulator."""


def sample(op, make):
    """One sample, from a function of (device, dtype) that returns the arguments."""

    @op.register_samples
    def _(device, dtype):
        yield Sample(args=tuple(make(device, dtype)))

    OPS[op.name.partition("::")[2]] = op
    return op


def normal(*shape):
    return lambda device, dtype: torch.randn(shape, device=device, dtype=dtype)


# --- Rows -------------------------------------------------------------------------------------------------------------


@opsmith.op("strangers::scaled_softmax")
def scaled_softmax(x: torch.Tensor, temperature: float = 2.0) -> torch.Tensor:
    return torch.softmax(x / temperature, -1)


sample(scaled_softmax, lambda device, dtype: [normal(64, 300)(device, dtype)])


@opsmith.op("strangers::rms_norm")
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


sample(rms_norm, lambda d, t: [normal(1000, 700)(d, t), normal(700)(d, t)])


@opsmith.op("strangers::layer_norm")
def layer_norm(x: torch.Tensor, shape: list[int], weight: torch.Tensor | None = None) -> torch.Tensor:
    return F.layer_norm(x, shape, weight)


sample(layer_norm, lambda d, t: [normal(512, 768)(d, t), [768], normal(768)(d, t)])


@opsmith.op("strangers::group_norm")
def group_norm(x: torch.Tensor, groups: int, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, groups, weight, bias)


sample(group_norm, lambda d, t: [normal(4, 256, 48, 48)(d, t), 32, normal(256)(d, t), normal(256)(d, t)])


@opsmith.op("strangers::cumulative")
def cumulative(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    return torch.cumsum(x, dim)


sample(cumulative, lambda d, t: [normal(300, 500)(d, t)])


@opsmith.op("strangers::top")
def top(x: torch.Tensor, k: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = torch.topk(x, k, -1)
    return values, places


sample(top, lambda d, t: [torch.randperm(40000, device=d).reshape(40, 1000).to(t) / 64])


@opsmith.op("strangers::winner")
def winner(x: torch.Tensor) -> torch.Tensor:
    return x.argmax(-1)


sample(winner, lambda d, t: [normal(100, 2000)(d, t)])


@opsmith.op("strangers::quantize")
def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.float().abs().amax(-1, keepdim=True) / 127
    return (x.float() / scale).round().clamp(-127, 127).to(torch.int8), scale[..., 0]


sample(quantize, lambda d, t: [normal(256, 512)(d, t)])


# --- Indexes ----------------------------------------------------------------------------------------------------------


@opsmith.op("strangers::embed")
def embed(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return table[index]


sample(embed, lambda d, t: [normal(5000, 64)(d, t), torch.randint(0, 5000, (300,), device=d)])


@opsmith.op("strangers::segment_sum")
def segment_sum(x: torch.Tensor, ids: torch.Tensor, segments: int) -> torch.Tensor:
    return torch.zeros(segments, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, ids, x)


sample(segment_sum, lambda d, t: [normal(2000, 16)(d, t), torch.randint(0, 100, (2000,), device=d).sort()[0], 100])


@opsmith.op("strangers::ragged_mean")
def ragged_mean(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    total = torch.cat([torch.zeros_like(x[:1]), x.cumsum(0)])
    begin, end = offsets[:-1].long(), offsets[1:].long()
    return (total[end] - total[begin]) / (end - begin).clamp(min=1)[:, None].to(x.dtype)


sample(ragged_mean, lambda d, t: [
    normal(1000, 32)(d, t), torch.tensor([0, 100, 150, 400, 401, 700, 1000], device=d, dtype=torch.int32)
])  # fmt: skip


@opsmith.op("strangers::cross_entropy")
def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, target)


sample(cross_entropy, lambda d, t: [normal(1024, 1000)(d, t), torch.randint(0, 1000, (1024,), device=d)])


@opsmith.op("strangers::one_hot")
def one_hot(index: torch.Tensor, x: torch.Tensor, classes: int = 50) -> torch.Tensor:
    return F.one_hot(index, classes).to(x.dtype) * x[:, None]


sample(one_hot, lambda d, t: [torch.randint(0, 50, (1000,), device=d), normal(1000)(d, t), 50])


@opsmith.op("strangers::counts")
def counts(index: torch.Tensor, bins: int = 64) -> torch.Tensor:
    return torch.bincount(index, minlength=bins)[:bins]


sample(counts, lambda d, t: [torch.randint(0, 64, (100000,), device=d), 64])


def _classes_or_none(count, classes, device):
    target = torch.randint(0, classes, (count,), device=device)
    return torch.where(torch.rand(count, device=device) < 0.2, -100, target)


@opsmith.op("strangers::loss_ignoring")
def loss_ignoring(logits: torch.Tensor, target: torch.Tensor, ignored: int = -100) -> torch.Tensor:
    return F.cross_entropy(logits, target, ignore_index=ignored, reduction="sum")


sample(loss_ignoring, lambda d, t: [normal(257, 13)(d, t), _classes_or_none(257, 13, d)])


# --- Lists, options, flags --------------------------------------------------------------------------------------------


@opsmith.op("strangers::joined")
def joined(parts: list[torch.Tensor], scale: float = 1.0) -> torch.Tensor:
    return torch.cat([part * scale for part in parts], -1)


sample(joined, lambda d, t: [[normal(100, 40)(d, t), normal(100, 70)(d, t), normal(100, 1)(d, t)], 0.5])


@opsmith.op("strangers::summed")
def summed(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(parts)).sum(0)


sample(summed, lambda d, t: [[normal(300, 300)(d, t) for _ in range(3)]])


@opsmith.op("strangers::linear")
def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return F.linear(x, weight, bias)


sample(linear, lambda d, t: [normal(128, 1024)(d, t) / 32, normal(256, 1024)(d, t), normal(256)(d, t)])


@opsmith.op("strangers::product")
def product(a: torch.Tensor, b: torch.Tensor, transpose: bool = False) -> torch.Tensor:
    return a @ (b.mT if transpose else b)


sample(product, lambda d, t: [normal(200, 300)(d, t) / 16, normal(100, 300)(d, t), True])


@opsmith.op("strangers::reduced")
def reduced(x: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    loss = (x - target).square()
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


sample(reduced, lambda d, t: [normal(400, 400)(d, t), normal(400, 400)(d, t), "none"])


@opsmith.op("strangers::masked")
def masked(x: torch.Tensor, mask: torch.Tensor, value: float = 0.0) -> torch.Tensor:
    return x.masked_fill(mask, value)


sample(masked, lambda d, t: [normal(10, 1000)(d, t), torch.rand(10, 1000, device=d) > 0.5])


@opsmith.op("strangers::heads")
def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    batch, length, width = x.shape
    return x.view(batch, length, count, width // count).transpose(1, 2)


sample(heads, lambda d, t: [normal(4, 200, 768)(d, t), 12])


@opsmith.op("strangers::split_gate")
def split_gate(x: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    first, second = torch.split(x, sizes, -1)
    return first * torch.sigmoid(second.sum(-1, keepdim=True))


sample(split_gate, lambda d, t: [normal(200, 300)(d, t), [100, 200]])


@opsmith.op("strangers::add_into", mutates_args=("x",))
def add_into(x: torch.Tensor, y: torch.Tensor, alpha: float = 1.0) -> None:
    x.add_(y, alpha=alpha)


sample(add_into, lambda d, t: [normal(300, 70)(d, t), normal(70)(d, t), 0.25])


# --- Images, matrices, signals ----------------------------------------------------------------------------------------


@opsmith.op("strangers::conv1d")
def conv1d(x: torch.Tensor, weight: torch.Tensor, stride: int = 1, padding: int = 0) -> torch.Tensor:
    return F.conv1d(x, weight, stride=stride, padding=padding)


sample(conv1d, lambda d, t: [normal(4, 16, 2000)(d, t), normal(8, 16, 5)(d, t) / 9, 2, 2])


@opsmith.op("strangers::upper")
def upper(x: torch.Tensor, diagonal: int = 0) -> torch.Tensor:
    return torch.triu(x @ x, diagonal)


sample(upper, lambda d, t: [normal(300, 300)(d, t) / 17, 1])


@opsmith.op("strangers::distances")
def distances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a[:, None] - b[None]).square().sum(-1)


sample(distances, lambda d, t: [normal(200, 30)(d, t), normal(150, 30)(d, t)])


@opsmith.op("strangers::rope")
def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


sample(rope, lambda d, t: [normal(2, 8, 512, 64)(d, t), normal(512, 32)(d, t), normal(512, 32)(d, t)])


@opsmith.op("strangers::attend")
def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


sample(attend, lambda d, t: [normal(2, 8, 128, 64)(d, t), normal(2, 8, 160, 64)(d, t), normal(2, 8, 160, 64)(d, t)])


@opsmith.op("strangers::spectrum")
def spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(x, dim=-1).abs().square()


sample(spectrum, lambda d, t: [normal(32, 4096)(d, t)])


@opsmith.op("strangers::repeated")
def repeated(x: torch.Tensor, times: int = 2) -> torch.Tensor:
    return x.repeat_interleave(times, -1)


sample(repeated, lambda d, t: [normal(100, 100)(d, t), 3])


@opsmith.op("strangers::complex_power")
def complex_power(z: torch.Tensor, p: float = 1.5) -> torch.Tensor:
    return (z.real.square() + z.imag.square() + 1e-3) ** p


sample(complex_power, lambda d, t: [torch.randn(33, 21, dtype=torch.complex64, device=d)])


@opsmith.op("strangers::complex_rotation")
def complex_rotation(z: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    return z * torch.polar(torch.ones_like(angle), angle)


sample(complex_rotation, lambda d, t: [
    torch.randn(9, 30, dtype=torch.complex128, device=d), torch.randn(30, dtype=torch.float64, device=d)
])  # fmt: skip


@opsmith.op("strangers::pooled")
def pooled(x: torch.Tensor, size: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = F.max_pool2d(x, size, return_indices=True)
    return values, places


sample(pooled, lambda d, t: [torch.randperm(16384, device=d).reshape(2, 8, 32, 32).to(t) / 64, 2])


# --- One element, and ten million -------------------------------------------------------------------------------------


@opsmith.op("strangers::one_number")
def one_number(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * x


sample(one_number, lambda d, t: [normal(1)(d, t)])


@opsmith.op("strangers::no_dimension")
def no_dimension(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y + 1


sample(no_dimension, lambda d, t: [normal()(d, t), normal()(d, t)])


@opsmith.pointwise("strangers::softsign_gate")
def softsign_gate(x: torch.Tensor, y: torch.Tensor, s: float = 1.5) -> torch.Tensor:
    return x / (1 + x.abs()) * torch.sigmoid(y * s)


sample(softsign_gate, lambda d, t: [normal(10000, 1000)(d, t), normal(1000)(d, t)])


@opsmith.pointwise("strangers::one_pointwise")
def one_pointwise(x: torch.Tensor, a: float = 3.0) -> torch.Tensor:
    return torch.log1p(x * x) * a


sample(one_pointwise, lambda d, t: [normal(1)(d, t)])


@opsmith.op("strangers::normalised_rows")
def normalised_rows(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=-1, keepdim=True)


sample(normalised_rows, lambda d, t: [normal(10000, 1000)(d, t)])


@opsmith.op("strangers::three_shapes")
def three_shapes(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return a * b + c


sample(three_shapes, lambda d, t: [normal(50, 1, 70)(d, t), normal(60, 1)(d, t), normal(1)(d, t)])


# --- With kernels -----------------------------------------------------------------------------------------------------


@opsmith.op("strangers::column_scale")
def column_scale(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * scale


@column_scale.register_kernel("cpu")
def _(x, scale):
    return torch.mul(x, scale) if x.shape[-1:] == scale.shape else NotImplemented


@column_scale.register_backward("cpu")
def _(grads, x, scale, *, needs):
    if x.shape[-1:] != scale.shape:
        return NotImplemented
    (grad,) = grads
    dx = grad * scale if needs.x else None
    dscale = (grad * x).sum_to_size(scale.shape) if needs.scale else None
    return dx, dscale


sample(column_scale, lambda d, t: [normal(2000, 600)(d, t), normal(600)(d, t)])


@opsmith.op("strangers::rms_with_kernel")
def rms_with_kernel(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@rms_with_kernel.register_kernel("cpu")
def _(x, weight, eps):
    if x.dtype not in (torch.float32, torch.float64) or weight.dtype != x.dtype or x.shape[-1:] != weight.shape:
        return NotImplemented
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@rms_with_kernel.register_backward("cpu")
def _(grads, x, weight, eps, *, needs):
    (grad,) = grads
    if x.dtype not in (torch.float32, torch.float64) or weight.dtype != x.dtype or x.shape[-1:] != weight.shape:
        return NotImplemented
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    normed, weighted = x * scale, grad * weight
    dx = scale * (weighted - normed * (weighted * normed).mean(-1, keepdim=True)) if needs.x else None
    return dx, (grad * normed).sum_to_size(weight.shape) if needs.weight else None


sample(rms_with_kernel, lambda d, t: [normal(100, 500)(d, t), normal(500)(d, t)])


@opsmith.op("strangers::only_float")
def only_float(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-x * x)


@only_float.register_kernel("cpu")
def _(x):
    if x.dtype is not torch.float32:
        return NotImplemented
    return (-x * x).exp_()


sample(only_float, lambda d, t: [normal(70000)(d, t)])


@opsmith.op("strangers::reverse_rows")
def reverse_rows(x: torch.Tensor) -> torch.Tensor:
    return x.flip(-1)


_reverse = opsmith.cuda_source(
    """
    template <typename T> __global__ void reverse(const T* x, T* y, long long rows, int columns) {
        long long row = blockIdx.x;
        for (int column = threadIdx.x; column < columns; column += blockDim.x)
            y[row * columns + column] = x[row * columns + columns - 1 - column];
    }
    """
)


@reverse_rows.register_kernel("cuda")
def _(x):
    y = torch.empty_like(x)
    columns = x.shape[-1] if x.ndim else 1
    rows = x.numel() // columns if columns else 0
    if x.dtype not in (torch.float32, torch.float64) or not x.ndim:
        return NotImplemented
    if rows:
        kind = "float" if x.dtype is torch.float32 else "double"
        _reverse[f"reverse<{kind}>"][rows, 128](x, y, rows, columns)
    return y


sample(reverse_rows, lambda d, t: [normal(60, 700)(d, t)])
EMULATED["reverse_rows"] = reverse_rows
EMULATED["softsign_gate"] = softsign_gate
