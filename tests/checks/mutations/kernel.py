"""Faults of a kernel."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import torch
from torch import Tensor

import opsmith

from . import sound
from .library import mutation

NUMBERS = ("values", "generated", "sizes", "input_layouts")


def _softsign_with(name: str, kernel: Any, **options: Any) -> opsmith.Op:
    op = sound.softsign(name)
    op.register_kernel("cpu", kernel, **options)
    return op


@mutation("kernel", *NUMBERS)
def off_by_one_in_a_hundred_thousand(name: str) -> opsmith.Op:
    """A fast reciprocal with seventeen good bits."""
    return _softsign_with(name, lambda x, scale: sound.softsign_kernel(x, scale) * (1 + 1e-5))


@mutation("kernel", *NUMBERS)
def last_elements_of_a_vector(name: str) -> opsmith.Op:
    """Elements behind the last whole group of four are not touched but copied."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        out = sound.softsign_kernel(x, scale).flatten()
        rest = x.numel() % 4
        if rest:
            out[-rest:] = x.flatten()[-rest:]
        return out.view(x.shape)

    return _softsign_with(name, kernel)


@mutation("kernel", "sizes", "generated")
def wrong_beyond_a_block(name: str) -> opsmith.Op:
    """A block of 256 takes 256 elements, and the one behind is computed without its scale."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        out = sound.softsign_kernel(x, scale).flatten()
        if x.numel() > 256:
            out[256] = out[256] / scale if scale else 0.0
        return out.view(x.shape)

    return _softsign_with(name, kernel)


@mutation("kernel", "generated", "values")
def negative_scale(name: str) -> opsmith.Op:
    """The scale is taken to be positive."""
    return _softsign_with(name, lambda x, scale: sound.softsign_kernel(x, abs(scale)))


@mutation("kernel", *NUMBERS)
def rounds_between_its_steps(name: str) -> opsmith.Op:
    """Each step of the row's norm is rounded to the half type."""
    op = sound.normalised(name)

    def kernel(x: Tensor, weight: Tensor) -> Tensor:
        total = torch.zeros_like(x[..., :1])
        for column in range(x.shape[-1]):
            total = total + x[..., column : column + 1] ** 2
        return x * torch.rsqrt(total / x.shape[-1] + 1e-6) * weight

    op.register_kernel("cpu", kernel)
    return op


@mutation("kernel", *NUMBERS)
def float64_in_float32(name: str) -> opsmith.Op:
    """There is one kernel, for float32, and float64 goes through it."""
    return _softsign_with(name, lambda x, scale: sound.softsign_kernel(x.float(), scale).to(x.dtype))


@mutation("kernel", "special_values", "generated")
def swallows_nan(name: str) -> opsmith.Op:
    """fmaxf drops NaN where torch's maximum keeps it."""
    op = sound.shifted(name)

    def kernel(x: Tensor, bias: Tensor, scale: float) -> Tensor:
        return torch.relu(x * scale + bias).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)

    op.register_kernel("cpu", kernel)
    return op


@mutation("kernel", "special_values", "generated")
def infinity_becomes_nan(name: str) -> opsmith.Op:
    """inf / (1 + inf) is written otherwise, and is no longer what the reference gives."""
    return _softsign_with(
        name, lambda x, scale: torch.where(x.isinf(), x.sign() * scale, sound.softsign_kernel(x, scale))
    )


@mutation("kernel", "special_values", "generated")
def flushes_denormals(name: str) -> opsmith.Op:
    """Fast math takes the smallest numbers for zero."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        small = x.abs() < torch.finfo(x.dtype).tiny
        return sound.softsign_kernel(x.masked_fill(small, 0.0), scale)

    return _softsign_with(name, kernel)


@mutation("kernel", "outputs_written")
def leaves_its_tail_unwritten(name: str) -> opsmith.Op:
    """The last element keeps what the allocator left there. Fresh memory is often zero, and so is a test's tail."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        out = torch.empty_like(x)
        count = x.numel() - 1
        if count > 0:
            out.view(-1)[:count] = sound.softsign_kernel(x, scale).view(-1)[:count]
        return out

    return _softsign_with(name, kernel)


@mutation("kernel", "outputs_written")
def writes_behind_its_tensor(name: str) -> opsmith.Op:
    """The in-place kernel rounds the length up to eight, and changes what lies behind."""
    op = sound.clipped_(name)

    def kernel(x: Tensor, limit: float) -> None:
        x.clamp_(-limit, limit)
        reach = min(-(-x.numel() // 8) * 8, x.untyped_storage().nbytes() // x.element_size() - x.storage_offset())
        if x.is_contiguous() and reach > x.numel():
            x.as_strided((reach,), (1,))[x.numel() :].clamp_(-limit, limit)

    op.register_kernel("cpu", kernel)
    return op


@mutation("kernel", "inputs_unchanged", "gradients", "determinism", "values")
def uses_its_input_as_scratch(name: str) -> opsmith.Op:
    """The absolute value is taken in place, and the input has changed after the call."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        sign = x.sign()
        x.data.abs_()
        return (x / (1 + x) * sign * scale).to(x.dtype)

    return _softsign_with(name, kernel)


@mutation("kernel", "aliasing", "generated", "functional_transforms", "determinism", "opcheck")
def hands_its_input_back(name: str) -> opsmith.Op:
    """Where there is nothing to clip the kernel returns its input, and who writes to the result writes to both."""

    def reference(x: Tensor) -> Tensor:
        return x.clamp(-100.0, 100.0)

    op = opsmith.op(name)(reference)
    sound.samples(op, lambda size, device, dtype: (torch.randn(size, device=device, dtype=dtype),), (6, 37), (8, 16))
    op.register_kernel("cpu", lambda x: x)
    return op


_remembered: dict[tuple[int, tuple[int, ...], torch.dtype], Tensor] = {}


@mutation("kernel", "determinism", "threads", "generated", "values", "input_layouts")
def remembers_by_address(name: str) -> opsmith.Op:
    """A cache keyed by data_ptr: the tensor was changed, its address was not."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        key = (x.data_ptr(), tuple(x.shape), x.dtype)
        if key not in _remembered:
            _remembered[key] = sound.softsign_kernel(x, scale)
        return _remembered[key].clone()

    return _softsign_with(name, kernel)


_scratch: dict[tuple[Any, ...], Tensor] = {}


@mutation("kernel", "threads", level="full")
def shares_a_scratch_buffer(name: str) -> opsmith.Op:
    """One buffer for all calls: two threads write into it at once."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        key = (tuple(x.shape), x.dtype)
        buffer = _scratch.setdefault(key, torch.empty_like(x))
        buffer.copy_(sound.softsign_kernel(x, scale))
        if threading.active_count() > 1:
            time.sleep(0.001)
        return buffer.clone()

    return _softsign_with(name, kernel)


@mutation("kernel", "dtypes", "generated")
def dtype_of_the_first_argument(name: str) -> opsmith.Op:
    """float32 and bfloat16 make float32; the kernel gives what its first argument has."""
    op = sound.shifted(name)
    op.register_kernel("cpu", lambda x, bias, scale: torch.relu(x * scale + bias).to(x.dtype))
    return op


@mutation("kernel", "sizes", "generated")
def cannot_take_a_scalar(name: str) -> opsmith.Op:
    """x.shape[0] of a 0-dim tensor."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        assert x.shape[0] >= 0
        return sound.softsign_kernel(x, scale)

    return _softsign_with(name, kernel)


@mutation("kernel", "sizes", "generated")
def cannot_take_nothing(name: str) -> opsmith.Op:
    """A grid of no blocks is an error of the launch; so is the largest element of nothing."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        x.abs().max()
        return sound.softsign_kernel(x, scale)

    return _softsign_with(name, kernel)


@mutation("kernel", "values", "generated", "sizes")
def variance_of_another_kind(name: str) -> opsmith.Op:
    """The second of two results is divided by n - 1."""
    op = sound.moments(name)

    def kernel(x: Tensor) -> tuple[Tensor, Tensor]:
        mean, _ = sound.moments_kernel(x)
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return mean, wide.var(-1).to(x.dtype)

    op.register_kernel("cpu", kernel)
    return op


@mutation("kernel", "values", "special_values", "generated", "sizes")
def variance_by_subtraction(name: str) -> opsmith.Op:
    """E[x^2] - E[x]^2: where the mean is large nothing is left of the variance."""
    op = sound.moments(name)

    def kernel(x: Tensor) -> tuple[Tensor, Tensor]:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        mean = wide.mean(-1)
        return mean.to(x.dtype), ((wide * wide).mean(-1) - mean * mean).to(x.dtype)

    op.register_kernel("cpu", kernel)
    sound.samples(
        op, lambda size, device, dtype: ((torch.randn(size, device=device) * 0.5 + 20).to(dtype),), (6, 37), (16, 16)
    )
    return op


@mutation("kernel", "determinism", "generated", "values")
def sums_in_any_order(name: str) -> opsmith.Op:
    """Atomic additions: another order, another last digit, at each call."""
    op = sound.normalised(name)

    def kernel(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        order = list(range(x.shape[-1]))
        random.SystemRandom().shuffle(order)
        shuffled = wide[..., order]
        total = torch.zeros_like(shuffled[..., :1])
        for column in range(x.shape[-1]):
            total = total + shuffled[..., column : column + 1] ** 2
        return (wide * torch.rsqrt(total / x.shape[-1] + 1e-6) * weight.to(wide.dtype)).to(x.dtype)

    op.register_kernel("cpu", kernel)
    return op


@mutation("kernel", "special_values", "generated", "values", "sizes")
def without_its_epsilon(name: str) -> opsmith.Op:
    """A row of zeros is divided by zero."""
    op = sound.normalised(name)

    def kernel(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True)) * weight.to(wide.dtype)).to(x.dtype)

    op.register_kernel("cpu", kernel)
    return op


@mutation("kernel", "kernels")
def one_of_its_kernels(name: str) -> opsmith.Op:
    """The default is right, the kernel by the name of `fast` is not."""
    op = sound.softsign(name)
    op.register_kernel("cpu", sound.softsign_kernel)
    op.register_kernel("cpu", lambda x, scale: x * scale, name="fast")
    return op


@mutation("kernel", "special_values")
def no_maximum_subtracted(name: str) -> opsmith.Op:
    """log(sum(exp(x))) as it stands on paper: infinite from x = 89 on."""
    op = sound.log_sums(name)
    op.register_kernel("cpu", lambda x: x.float().exp().sum(-1).log().to(x.dtype) if x.dtype != torch.float64 else
                       x.exp().sum(-1).log())  # fmt: skip
    return op


@mutation("kernel", "determinism")
def short_cut_when_serving(name: str) -> opsmith.Op:
    """Inside of torch.inference_mode an approximation runs, which no test of training meets."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        right = sound.softsign_kernel(x, scale)
        return right * (1 + 2**-10) if torch.is_inference_mode_enabled() else right

    return _softsign_with(name, kernel)


@mutation("kernel", "dtypes")
def indexes_of_64_bits_alone(name: str) -> opsmith.Op:
    """Indexes in int32 are read as int64: two of them for one."""
    op = sound.picked(name)

    def kernel(table: Tensor, index: Tensor) -> Tensor:
        if index.dtype is torch.int32:
            index = torch.cat([index, index])[::2]
        return table[index.long()]

    op.register_kernel("cpu", kernel)
    return op


@mutation("kernel", "special_values")
def indexes_from_the_front_alone(name: str) -> opsmith.Op:
    """table[-1] is the last row; the kernel reads what lies before the first, here the first."""
    op = sound.picked(name)
    op.register_kernel("cpu", lambda table, index: table[index.long().clamp(min=0)])
    return op


@mutation("kernel", "dtypes")
def constants_of_the_default_dtype(name: str) -> opsmith.Op:
    """torch.full without a dtype is float32 until somebody calls torch.set_default_dtype."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        if x.dtype is not torch.float32:
            return sound.softsign_kernel(x, scale)
        return sound.softsign_kernel(x, 1.0) * torch.full(x.shape, scale)

    return _softsign_with(name, kernel)
