"""Twenty ops of different shapes, six of them pointwise, each a plain reference with samples: what the tests of
completeness run on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Optional

import torch
from torch import Tensor

import opsmith
from opsmith import Op, Sample


def mish(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.nn.functional.softplus(x))


def scale_bias_relu(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
    return torch.relu(x * scale + bias)


def optional_bias(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, *, negate: bool = False) -> Tensor:  # noqa: UP045
    result = x @ weight if bias is None else x @ weight + bias
    return -result if negate else result


def weighted_sum(tensors: list[Tensor], weights: list[float]) -> Tensor:
    total = torch.zeros_like(tensors[0])
    for tensor, weight in zip(tensors, weights, strict=True):
        total = total + tensor * tensor * weight
    return total


def moments(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    mean = x.mean(dims, keepdim=True)
    return mean, ((x - mean) ** 2).mean(dims)


def gather_rows(table: Tensor, index: Tensor) -> Tensor:
    return table[index] * table.sum()


def top(x: Tensor, k: int = 2) -> tuple[Tensor, Tensor]:
    values, indices = torch.topk(x, k, dim=-1)
    return values * values, indices


def cast_square(x: Tensor, dtype: torch.dtype) -> Tensor:
    return (x * x).to(dtype)


def activation(x: Tensor, kind: str = "sin") -> Tensor:
    return torch.sin(x) if kind == "sin" else torch.cos(x)


def pieces(x: Tensor, count: int) -> list[Tensor]:
    return [piece * (index + 1) for index, piece in enumerate(torch.sin(x).chunk(count, dim=0))]


def cumulative(x: Tensor, reverse: bool) -> Tensor:
    result = torch.logcumsumexp(x.flip(0) if reverse else x, dim=0)
    return result.flip(0) if reverse else result


def transposed_view(x: Tensor) -> Tensor:
    return x.transpose(-1, -2)


def polynomial(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return a * x**3 + b * x**2 + c * x + d


def sum_and_product(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.tanh(x + y), x * torch.sin(y)


def chosen(x: Tensor, power: float, negate: bool = False, kind: str = "sin") -> Tensor:
    result = torch.sin(x) if kind == "sin" else torch.exp(x)
    return -result * math.sqrt(power) if negate else result


def add_scaled_(x: Tensor, y: Tensor, alpha: float = 1.0) -> None:
    x.sin_().add_(y * y, alpha=alpha)


def swap_(x: Tensor, y: Tensor) -> None:
    old_x, old_y = x.clone(), y.clone()
    x.copy_(old_y * old_y)
    y.copy_(torch.cos(old_x))


def _tensor(*shape: int, device: object = "cpu", dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, device=device, dtype=dtype)  # type: ignore[call-overload, no-any-return]


def _samples(*builders: Callable[..., tuple[tuple[object, ...], dict[str, object]]]) -> Callable[..., Iterator[Sample]]:
    def samples(device: object, dtype: torch.dtype) -> Iterator[Sample]:
        for index, build in enumerate(builders):
            args, kwargs = build(lambda *shape: _tensor(*shape, device=device, dtype=dtype))
            yield Sample(args=args, kwargs=kwargs, name=f"sample {index}")

    return samples


ZOO: dict[str, tuple[Callable[..., object], tuple[str, ...], Callable[..., Iterator[Sample]]]] = {
    "mish": (mish, (), _samples(lambda t: ((t(3, 4),), {}), lambda t: ((t(),), {}), lambda t: ((t(0, 2),), {}))),
    "scale_bias_relu": (
        scale_bias_relu, (), _samples(lambda t: ((t(3, 4), t(4), 2.0), {}), lambda t: ((t(2, 3), t(1)), {})),
    ),
    "optional_bias": (
        optional_bias, (),
        _samples(
            lambda t: ((t(3, 4), t(4, 2)), {}),
            lambda t: ((t(3, 4), t(4, 2), t(2)), {}),
            lambda t: ((t(3, 4), t(4, 2), t(2)), {"negate": True}),
        ),
    ),
    "weighted_sum": (weighted_sum, (), _samples(lambda t: (([t(3), t(3), t(3)], [1.0, 2.0, -1.0]), {}))),
    "moments": (moments, (), _samples(lambda t: ((t(3, 4), [1]), {}), lambda t: ((t(2, 3, 2), [0, 2]), {}))),
    "gather_rows": (
        gather_rows, (), _samples(lambda t: ((t(5, 3), torch.tensor([0, 2, 2], device=t(1).device)), {})),
    ),
    "top": (top, (), _samples(lambda t: ((t(3, 5),), {}), lambda t: ((t(3, 5), 3), {}))),
    "cast_square": (cast_square, (), _samples(lambda t: ((t(3, 2), t(1).dtype), {}))),
    "activation": (activation, (), _samples(lambda t: ((t(4), "sin"), {}), lambda t: ((t(4), "cos"), {}))),
    "pieces": (pieces, (), _samples(lambda t: ((t(6, 2), 3), {}))),
    "cumulative": (cumulative, (), _samples(lambda t: ((t(4, 2), True), {}), lambda t: ((t(4, 2), False), {}))),
    "transposed_view": (transposed_view, (), _samples(lambda t: ((t(3, 4),), {}))),
    "add_scaled_": (add_scaled_, ("x",), _samples(lambda t: ((t(3, 4), t(3, 4), 0.5), {}))),
    "swap_": (swap_, ("x", "y"), _samples(lambda t: ((t(3), t(3)), {}))),
    "pointwise_mish": (
        mish, (), _samples(lambda t: ((t(3, 4),), {}), lambda t: ((t(),), {}), lambda t: ((t(0, 2),), {})),
    ),
    "pointwise_scale_bias_relu": (
        scale_bias_relu, (),
        _samples(lambda t: ((t(3, 4), t(4), 2.0), {}), lambda t: ((t(2, 3, 2), t(3, 1)), {})),
    ),
    "pointwise_polynomial": (polynomial, (), _samples(lambda t: ((t(3, 4), t(), t(4), t(3, 1), t(1, 1)), {}))),
    "pointwise_sum_and_product": (sum_and_product, (), _samples(lambda t: ((t(3, 1), t(4)), {}))),
    "pointwise_chosen": (
        chosen, (), _samples(lambda t: ((t(4), 2.0), {}), lambda t: ((t(4), 2.0, True), {"kind": "exp"})),
    ),
    "pointwise_add_scaled_": (add_scaled_, ("x",), _samples(lambda t: ((t(3, 4), t(3, 4), 0.5), {}))),
}  # fmt: skip
FUNCTIONAL = [name for name, (_, mutated, _) in ZOO.items() if not mutated]
IN_PLACE = [name for name, (_, mutated, _) in ZOO.items() if mutated]


def declare(base: str, name: str) -> Op:
    """The zoo's op `base` under a name of its own."""
    function, mutated, samples = ZOO[base]
    make = opsmith.pointwise if base.startswith("pointwise") else opsmith.op
    op = make(name, mutates_args=mutated)(function)
    op.register_samples(samples)
    return op
