"""Ops that give wrong numbers somewhere, one fault each, and the sound ones they were made from.

`FAULTS` tells for each the item that must find it and words of its message.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import opsmith
from opsmith import Op, Sample

FAULTS: dict[str, tuple[str, str]] = {}
SOUND: list[str] = []


# --- What they compute --------------------------------------------------------------------------------------------


def softsign(x: Tensor, scale: float = 2.0) -> Tensor:
    return x / (1 + x.abs()) * scale


def slope(x: Tensor, scale: float) -> Tensor:
    return scale / (1 + x.abs()) ** 2


def product(x: Tensor, y: Tensor) -> Tensor:
    return x * torch.sin(y)


def both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sin(x) * y, torch.cos(x) + y


def clamped(x: Tensor) -> Tensor:
    return x.clamp(-1.0, 1.0) * 1.5


def row_sum(x: Tensor) -> Tensor:
    return x.sum(-1)


def careful(x: Tensor) -> Tensor:
    """That refuses integers."""
    if not x.is_floating_point():
        raise TypeError("careful takes floating tensors")
    return x * 2.0


def wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """As a kernel does it: half types in float32, rounded once."""

    def kernel(*args: Any) -> Any:
        tensors = [each for each in args if isinstance(each, Tensor)]
        if not all(each.dtype in (torch.float16, torch.bfloat16) for each in tensors):
            return function(*args)
        found = function(*[each.float() if isinstance(each, Tensor) else each for each in args])
        return found.to(functools.reduce(torch.promote_types, (each.dtype for each in tensors)))

    return kernel


# --- How they are declared ----------------------------------------------------------------------------------------


def one(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    for shape in ((8, 32), (64,), (4, 4, 8)):
        yield Sample((torch.randn(shape, device=device, dtype=dtype), 2.0), name=f"shape {shape}")


def one_alone(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    for sample in one(device, dtype):
        yield Sample(sample.args[:1], name=sample.name)


def two(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    for shape in ((8, 32), (64,)):
        yield Sample(tuple(torch.randn(2, *shape, device=device, dtype=dtype)), name=f"shape {shape}")


def sound(name: str, function: Callable[..., Any], samples: Callable[..., Iterator[Sample]]) -> Op:
    op = opsmith.op(f"faulty::{name}")(function)
    op.register_samples(samples)
    SOUND.append(op.name)
    return op


def faulty(
    item: str, words: str, function: Callable[..., Any], samples: Callable[..., Iterator[Sample]]
) -> Callable[[Callable[[Op], None]], Op]:
    def declare(give: Callable[[Op], None]) -> Op:
        op = opsmith.op(f"faulty::{give.__name__}")(function)
        op.register_samples(samples)
        give(op)
        FAULTS[op.name] = item, words
        return op

    return declare


# --- Sound --------------------------------------------------------------------------------------------------------

sound("softsign", softsign, one).register_kernel("cpu", wide(lambda x, scale: scale * (x / (x.abs() + 1))))
sound("product", product, two).register_kernel("cpu", wide(lambda x, y: torch.sin(y) * x))
sound("both", both, two)
sound("clamped", clamped, one_alone).register_kernel("cpu", wide(lambda x: 1.5 * x.clamp(-1.0, 1.0)))


@sound("row_sum", row_sum, one_alone).register_kernel("cpu")
@wide
def _(x: Tensor) -> Tensor:
    """One after another."""
    if x.ndim == 0:
        return x.clone()
    return x.cumsum(-1)[..., -1].clone() if x.shape[-1] else x.new_zeros(x.shape[:-1])


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Whose reference could draw random numbers and does not, has neither tangents nor second gradients, and gives
    gradients that are not contiguous."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def heads(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample(tuple(torch.randn(3, 2, 3, 9, 8, device=device, dtype=dtype)))


def top_two(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = x.topk(2, -1)
    return values, places


def rows(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((torch.randn(6, 32, device=device, dtype=dtype),))


def spectrum(x: Tensor) -> Tensor:
    return torch.fft.rfft(x, dim=-1)


def complex_product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


def complex_pairs(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    if dtype.itemsize > 2:
        yield Sample(tuple(torch.randn(2, 4, 8, device=device, dtype=dtype.to_complex())))


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """In float32 whatever it is given, as models have it."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def rows_and_weight(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((torch.randn(6, 32, device=device, dtype=dtype), torch.randn(32, device=device, dtype=dtype)))


def norm_in_own(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def gate(logits: Tensor) -> tuple[Tensor, Tensor]:
    values, places = torch.softmax(logits, -1).topk(2, -1)
    return values / values.sum(-1, keepdim=True), places


def enlarged(x: Tensor) -> Tensor:
    """For which torch's rules do not take symbols unless they are in Python."""
    return torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")


def images(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((torch.randn(1, 2, 5, 6, device=device, dtype=dtype),))


sound("norm_in_own", norm, rows_and_weight).register_kernel("cpu", wide(norm_in_own))
sound("norm_in_single", norm, rows_and_weight).register_kernel("cpu", norm)
sound("enlarged", enlarged, images)
sound("attention", attention, heads)
sound("spectrum", spectrum, rows)
sound("complex_product", complex_product, complex_pairs)


@sound("top_two", top_two, rows).register_kernel("cpu")
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of equal numbers the first, which topk does not promise."""
    values, places = x.sort(dim=-1, descending=True, stable=True)
    return values[..., :2].contiguous(), places[..., :2].contiguous()


@sound("gate", gate, rows).register_kernel("cpu")
def _(logits: Tensor) -> tuple[Tensor, Tensor]:
    """By the logits themselves, of which no two become equal."""
    values, places = logits.topk(2, -1)
    return torch.softmax(values, -1), places


# --- Results ------------------------------------------------------------------------------------------------------


@faulty("values", "ULP", softsign, one)
def slightly_off(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x, scale: softsign(x, scale) * (1 + 1e-5)))


@faulty("values", "bfloat16", softsign, one)
def rounds_intermediates(op: Op) -> None:
    op.register_kernel("cpu", lambda x, scale: softsign(x, scale))


@faulty("values", "float64", softsign, one)
def computes_doubles_in_single(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x, scale: softsign(x.float(), scale).to(x.dtype)))


@faulty("values", "ULP", row_sum, one_alone)
def forgets_a_term(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x: x[..., :-1].sum(-1)))


def halved(x: Tensor) -> Tensor:
    return x * 0.5


@faulty("special_values", "is right", halved, one_alone)
def wrong_where_squares_overflow(op: Op) -> None:
    """Numbers whose squares are infinite in float64."""
    op.register_kernel("cpu", lambda x: torch.where(x.double().abs() > 1e200, x * 0.4, x * 0.5))


@faulty("sizes", "shape[0] =", softsign, one)
def wrong_remainder(op: Op) -> None:
    """The last element, where their number is not a multiple of 4, is not computed."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        result = wide(softsign)(x, scale)
        if x.numel() % 4:
            result.view(-1)[-1] = 0.0
        return result

    op.register_kernel("cpu", kernel)


@faulty("sizes", "= 0", softsign, one)
def refuses_nothing(op: Op) -> None:
    """An empty tensor raises."""
    op.register_kernel("cpu", wide(lambda x, scale: softsign(x, scale) + 0 * x.max()))


@faulty("input_layouts", "sliced", softsign, one)
def ignores_strides(op: Op) -> None:
    """Memory is read as if it were contiguous."""

    def kernel(x: Tensor, scale: float) -> Tensor:
        return wide(softsign)(torch.as_strided(x, x.shape, torch.empty(x.shape).stride()), scale)

    op.register_kernel("cpu", kernel, layout="strided")


@faulty("input_layouts", "strides", softsign, one)
def keeps_strides(op: Op) -> None:
    """The result is permuted as the input is, where contiguous ones are declared."""
    op.register_kernel("cpu", wide(softsign), layout="strided")


@faulty("special_values", "NaN", softsign, one)
def swallows_nan(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x, scale: torch.where(x.isnan(), 0.0, softsign(x, scale)).to(x.dtype)))


@faulty("dtypes", "the reference's", product, two)
def forgets_promotion(op: Op) -> None:
    op.register_kernel("cpu", lambda x, y: wide(product)(x, y).to(x.dtype))


@faulty("dtypes", "it returns, where the reference raises TypeError", careful, one_alone)
def takes_integers(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x: x * 2.0))


@faulty("determinism", "from one call to the next", softsign, one)
def changes_from_call_to_call(op: Op) -> None:
    """By one unit in the last place, as a sum in no fixed order does."""
    calls = [0]

    def kernel(x: Tensor, scale: float) -> Tensor:
        calls[0] += 1
        result = wide(softsign)(x, scale)
        return torch.nextafter(result, torch.full_like(result, 9.0)) if calls[0] % 3 == 0 else result

    op.register_kernel("cpu", kernel)


@faulty("kernels", "kernel 'fast'", softsign, one)
def has_a_wrong_choice(op: Op) -> None:
    op.register_kernel("cpu", wide(softsign))
    op.register_kernel("cpu", wide(lambda x, scale: softsign(x, scale) * 1.001), name="fast")


@faulty("generated", "scale = -2.0", softsign, one)
def fears_negative_scales(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x, scale: softsign(x, abs(scale))))


# --- Gradients ----------------------------------------------------------------------------------------------------


@faulty("gradients", "gradient of x", softsign, one)
def forgets_the_scale(op: Op) -> None:
    op.register_backward("cpu", lambda grads, x, *, needs: grads[0] * slope(x, 1.0))


@faulty("gradients", "gradient of x", softsign, one)
def slightly_off_gradient(op: Op) -> None:
    op.register_backward("cpu", lambda grads, x, scale, *, needs: grads[0] * slope(x, scale) * (1 + 1e-5))


@faulty("second_gradients", "second gradient", softsign, one)
def detaches_its_gradient(op: Op) -> None:
    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    op.register_autograd(
        lambda ctx, grad: (grad * slope(ctx.saved_tensors[0].detach(), ctx.scale), None), setup_context=setup
    )


@faulty("needed_gradients", "a gradient for y alone", product, two)
def counts_on_x(op: Op) -> None:
    """The gradient of y is right only where x asks for one too."""

    def backward(grads: Any, x: Tensor, y: Tensor, *, needs: Any) -> Any:
        other = grads[0] * x * torch.cos(y) if needs.x else grads[0] * torch.cos(y)
        return grads[0] * torch.sin(y) if needs.x else None, other if needs.y else None

    op.register_backward("cpu", backward)


@faulty("needed_gradients", "alone: gradient of x", both, two)
def counts_on_every_result(op: Op) -> None:
    """A result whose gradient is undefined is taken to have ones."""

    def backward(grads: Any, x: Tensor, y: Tensor, *, needs: Any) -> Any:
        first, second = (torch.ones_like(x) if grad is None else grad for grad in grads)
        by_x = first * torch.cos(x) * y - second * torch.sin(x)
        return by_x if needs.x else None, first * torch.sin(x) + second if needs.y else None

    op.register_backward("cpu", backward)


@faulty("needed_gradients", "the second time", product, two)
def uses_up_its_graph(op: Op) -> None:
    """Backward writes into what was saved: what it needs is there only once."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.sine, ctx.cosine = torch.sin(inputs[1]), inputs[0] * torch.cos(inputs[1])

    def backward(ctx: Any, grad: Tensor) -> Any:
        return ctx.sine.mul_(grad), ctx.cosine.mul_(grad)

    op.register_autograd(backward, setup_context=setup)


@faulty("gradient_layouts", "gradients of results", softsign, one)
def takes_dense_gradients(op: Op) -> None:
    """The gradient of the result is read as if it were contiguous."""

    def backward(grads: Any, x: Tensor, scale: float, *, needs: Any) -> Any:
        grad = grads[0]
        reach = grad.untyped_storage().nbytes() // grad.element_size() - grad.storage_offset()
        memory = torch.as_strided(grad, (min(reach, grad.numel()),), (1,))
        dense = torch.cat([memory, memory.new_zeros(grad.numel() - memory.numel())]).reshape(grad.shape)
        return dense * slope(x, scale)

    op.register_backward("cpu", backward, layout="strided")


@faulty("special_values", "gradient of x", clamped, one_alone)
def picks_another_subgradient(op: Op) -> None:
    op.register_backward("cpu", lambda grads, x, *, needs: grads[0] * 1.5 * (x.abs() < 1.0))


# --- Wrong where others seldom look -------------------------------------------------------------------------------


def halve_(x: Tensor) -> None:
    x.mul_(0.5)


def largest(x: Tensor) -> Tensor:
    return x.argmax(-1)


def large(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((torch.randn(512, 1024, device=device, dtype=dtype), 2.0), name="large")


def _in_place() -> None:
    """The memory of x, whatever its strides."""
    op = opsmith.op("faulty::takes_dense_memory_", mutates_args=("x",))(halve_)
    op.register_samples(one_alone)

    def kernel(x: Tensor) -> None:
        count = min(x.numel(), x.untyped_storage().nbytes() // x.element_size() - x.storage_offset())
        x.as_strided((count,), (1,)).mul_(0.5)

    op.register_kernel("cpu", kernel, layout="strided")
    FAULTS[op.name] = "input_layouts", "result: "


_in_place()


@faulty("input_layouts", "x as y too: result: ", product, two)
def minds_one_tensor_twice(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x, y: x * torch.cos(y) if x.data_ptr() == y.data_ptr() else x * torch.sin(y)))


@faulty("values", "large, float32: result: ", softsign, large)
def is_wrong_where_it_is_large(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x, scale: softsign(x, scale) * (2.0 if x.numel() > 1 << 17 else 1.0)))


@faulty("determinism", "inside torch.inference_mode()", largest, one_alone)
def serves_something_else(op: Op) -> None:
    op.register_kernel("cpu", lambda x: x.argmin(-1) if torch.is_inference_mode_enabled() else x.argmax(-1))


@faulty("determinism", "it draws random numbers, or seeds them", softsign, one)
def uses_up_random_numbers(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x, scale: softsign(x, scale) + 0 * torch.rand(())))


@faulty("determinism", "it draws random numbers, or seeds them", softsign, one)
def seeds_random_numbers(op: Op) -> None:
    def kernel(x: Tensor, scale: float) -> Tensor:
        torch.manual_seed(0)
        return softsign(x, scale)

    op.register_kernel("cpu", wide(kernel))


def shifted(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return x * 2 if bias is None else x * 2 + bias


def padded(x: Tensor, pad: list[int]) -> Tensor:
    return torch.nn.functional.pad(x, (pad[0], pad[1]))


def padding(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    for sample in one_alone(device, dtype):
        yield Sample((*sample.args, [1, 1]), name=sample.name)


@faulty("generated", "bias = None: result: ", shifted, two)
def counts_on_its_bias(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x, bias: x * 3 if bias is None else x * 2 + bias))


@faulty("generated", "pad = [2, 1]: it raises KernelResultError", padded, padding)
def looks_at_one_side(op: Op) -> None:
    op.register_kernel("cpu", lambda x, pad: torch.nn.functional.pad(x, (pad[0], pad[0])))


def tripled(x: Tensor) -> Tensor:
    return x * 3 + 1


def integers(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((torch.randint(-9, 9, (6, 8), device=device),))


def looked_up(table: Tensor, places: Tensor) -> Tensor:
    return table[places]


def table_and_places(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((torch.randn(10, 8, device=device, dtype=dtype), torch.randint(0, 10, (3, 4), device=device)))


@faulty("special_values", "16777217 in x: result: values differ", tripled, integers)
def counts_in_single(op: Op) -> None:
    op.register_kernel("cpu", lambda x: (x.to(torch.float32) * 3 + 1).to(x.dtype))


@faulty("special_values", "-1 in places: result: ", looked_up, table_and_places)
def counts_from_the_front(op: Op) -> None:
    op.register_kernel("cpu", lambda table, places: table[places.clamp(min=0)])


@faulty("dtypes", "after torch.set_default_dtype(torch.float64): the result is float64", row_sum, one_alone)
def goes_by_the_default(op: Op) -> None:
    op.register_kernel("cpu", lambda x: row_sum(x) + (torch.zeros(x.shape[:-1]) if x.dtype is torch.float32 else 0))


@faulty("dtypes", "after torch.set_default_dtype(torch.float64): it raises RuntimeError", row_sum, one_alone)
def minds_the_default(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x: x @ torch.ones(x.shape[-1]) if x.dtype is torch.float32 else row_sum(x)))


@faulty("gradients", "gradcheck: While considering the imaginary part", complex_product, complex_pairs)
def forgets_to_conjugate(op: Op) -> None:
    op.register_kernel("cpu", lambda x, y: x * y)

    @op.register_backward("cpu")
    def _(grads: tuple[Tensor], x: Tensor, y: Tensor, *, needs: Any) -> tuple[Tensor, Tensor]:
        return grads[0] * y, grads[0] * x


@faulty("values", "float64: result: ", norm, rows_and_weight)
def is_off_by_more_than_single(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x, w: norm_in_own(x, w) * (1 + 1e-5 * (x.dtype is torch.float64))))


def halved(x: Tensor) -> Tensor:
    """With a constant of float32, for which no digit of x is lost."""
    return x * torch.full((), 0.5, dtype=torch.float32, device=x.device)


@faulty("values", "float64: result: ", halved, one_alone)
def hides_behind_a_constant(op: Op) -> None:
    op.register_kernel("cpu", wide(lambda x: halved(x) * (1 + 1e-9 * (x.dtype is torch.float64))))
