"""Samples of other sizes: what a shape may be written as, and which dimensions follow it."""

from __future__ import annotations

import pytest
import torch

import opsmith
from opsmith.benchmark.shapes import SCALING, described, parsed, resized

from .ops_to_time import Fresh, cubed, scale_add


@pytest.mark.parametrize(
    ("text", "shape"),
    [("4096x1024", (4096, 1024)), ("1048576", (1048576,)), ("2^20", (1 << 20,)), ("2^4X3", (16, 3)), ("1x1", (1, 1))],
)
def test_a_shape(text: str, shape: tuple[int, ...]) -> None:
    assert parsed(text) == shape


@pytest.mark.parametrize("text", ["", "x", "12x", "0", "-3", "4x0", "1.5", "2^", "2^-1", "4*4", "many"])
def test_an_invalid_shape(text: str) -> None:
    with pytest.raises(ValueError, match="is not a shape"):
        parsed(text)


def test_other_tensors_follow_the_first_ones_dimensions(fresh: Fresh) -> None:
    made = resized(scale_add(fresh), (32, 5), "cpu", torch.float32)
    x, bias, scale = made.args
    assert x.shape == (32, 5) and bias.shape == (5,) and scale == 2.0 and made.name == "32x5"


def test_fewer_dimensions(fresh: Fresh) -> None:
    x, bias, _ = resized(scale_add(fresh), (1000,), "cpu", torch.float64).args
    assert x.shape == (1000,) and bias.shape == (1000,) and x.dtype == bias.dtype == torch.float64


def test_unlinked_dimensions_stay(fresh: Fresh) -> None:
    op = scale_add(fresh)
    op.register_samples(lambda device, dtype: [opsmith.Sample((torch.randn(4, 3, 8, 8), torch.randn(3, 1, 1)))])
    x, bias, _ = resized(op, (2, 3, 32, 16), "cpu", torch.float32).args
    assert x.shape == (2, 3, 32, 16) and bias.shape == (3, 1, 1)


def test_whole_numbers_stay_within_those_of_the_sample(fresh: Fresh) -> None:
    def pick(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[index]

    op = opsmith.op(fresh("pick"))(pick)
    op.register_samples(
        lambda device, dtype: [opsmith.Sample((torch.randn(9), torch.tensor([0, 2, 8, 1, 3, 4, 5, 6, 7])))]
    )
    _, index = resized(op, (4096,), "cpu", torch.float32).args
    assert index.shape == (4096,) and index.dtype == torch.int64 and index.min() >= 0 and index.max() <= 8


def test_an_op_whose_samples_are_all_empty(fresh: Fresh) -> None:
    op = cubed(fresh)
    op.register_samples(lambda device, dtype: [opsmith.Sample((torch.zeros(0),))])
    with pytest.raises(ValueError, match="has no sample with elements"):
        resized(op, (4,), "cpu", torch.float32)


def test_scaling_goes_from_a_thousand_to_a_thousand_million() -> None:
    assert (SCALING[0], SCALING[-1]) == (2**10, 2**30)
    assert [described(size) for size in SCALING] == ["1 K", "16 K", "256 K", "4 M", "64 M", "1 G"]
    assert described(1000) == "1,000" and described(3 << 20) == "3,145,728" and described(512) == "512"


def test_values_are_of_the_samples_kind(fresh: Fresh) -> None:
    def root(x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(torch.log(x))

    op = opsmith.pointwise(fresh("root"))(root)
    op.register_samples(lambda device, dtype: [opsmith.Sample((1 + torch.rand(7, device=device, dtype=dtype),))])
    (x,) = resized(op, (32, 5), "cpu", torch.float32).args
    assert x.shape == (32, 5) and float(x.min()) >= 1 and x.unique().numel() == 7
