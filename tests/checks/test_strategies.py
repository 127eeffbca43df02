"""Generated calls follow the patterns of the samples, and come with the code that makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Optional

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, Sample
from opsmith.checks.cases.acceptance import taken, work
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.patterns import TensorSpec, flat_pattern, lengthened, patterns_of
from opsmith.checks.cases.strategies import beside_samples
from opsmith.checks.items import generated
from opsmith.checks.subject import Subject

Fresh = Callable[[str], str]


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, scale: float = 1.0) -> Tensor:  # noqa: UP045
    return x @ weight * scale if bias is None else x @ weight * scale + bias


def linear_samples(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, dtype=dtype)

    yield Sample((draw(3, 4), draw(4, 5)))
    yield Sample((draw(6, 2), draw(2, 7)))
    yield Sample((draw(3, 4), draw(4, 5), draw(5), 0.5))


def subject(fresh: Fresh, function: Callable[..., Any], samples: Callable[..., Iterator[Sample]]) -> Subject:
    op = opsmith.op(fresh(function.__name__))(function)
    op.register_samples(samples)
    return Subject(op)


def drawn(subject: Subject, examples: int = 60, most: int = 4096) -> list[Case]:
    found: list[Case] = []
    generated.run(subject, found.append, examples, most)
    assert found
    return found


def rebuilt(subject: Subject, case: Case) -> list[Any]:
    scope: dict[str, Any] = {"torch": torch, "opsmith": opsmith, "op": subject.op}
    exec("\n".join(case.lines), scope)
    return [scope[argument.name] for argument in case.arguments]


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec((3, 4), torch.float32, -2.0, 3.0, 5),
        TensorSpec((3, 4), torch.bfloat16, 0.5, 0.75, 1, "sliced"),
        TensorSpec((), torch.float64, 1.0, 1.0),
        TensorSpec((0, 2), torch.float16),
        TensorSpec((6,), torch.int64, 2, 4, 3, "offset"),
        TensorSpec((6,), torch.bool, 0, 1, 3),
    ],
    ids=str,
)
def test_a_spec_builds_the_tensor_that_its_code_makes(spec: TensorSpec) -> None:
    built, evaluated = spec.build(), eval(spec.code(), {"torch": torch, "opsmith": opsmith})
    assert torch.equal(built, evaluated) and built.stride() == evaluated.stride()
    assert built.shape == spec.shape and built.dtype == spec.dtype
    assert built.numel() == 0 or spec.low <= float(built.min()) <= float(built.max()) <= spec.high


def test_dimensions_that_were_equal_in_every_sample_stay_equal(fresh: Fresh) -> None:
    first, with_bias = patterns_of(subject(fresh, linear, linear_samples))
    assert [group.places for group in first.groups] == [((0, 0),), ((0, 1), (1, 0)), ((1, 1),)]
    assert [group.places for group in with_bias.groups][2] == ((1, 1), (2, 0))


def test_every_call_has_shapes_that_fit_and_lines_that_make_it(fresh: Fresh) -> None:
    under_check = subject(fresh, linear, linear_samples)
    found = drawn(under_check)
    assert all(case["x"].shape[1] == case["weight"].shape[0] for case in found)
    assert {case["bias"] is None for case in found} == {True, False}
    assert any(not case["x"].is_contiguous() for case in found) and any(
        not tensor.numel() for case in found for tensor in case.every_tensor()
    )
    for case in found[:20]:
        for mine, other in zip(case.values, rebuilt(under_check, case), strict=True):
            same = (
                torch.equal(mine, other) and mine.stride() == other.stride()
                if isinstance(mine, Tensor)
                else mine == other
            )
            assert same


def test_the_same_seed_makes_the_same_calls(fresh: Fresh) -> None:
    under_check = subject(fresh, linear, linear_samples)
    first, again = drawn(under_check), drawn(under_check)
    assert [case.lines for case in first] == [case.lines for case in again]
    assert [case.lines for case in first] != [case.lines for case in drawn(Subject(under_check.op, seed=1))]


def test_tensors_of_a_pointwise_op_broadcast(fresh: Fresh) -> None:
    def fused(x: Tensor, y: Tensor) -> Tensor:
        return x * y + 1

    op = opsmith.pointwise(fresh("fused"))(fused)
    op.register_samples(
        lambda device, dtype: iter([Sample((torch.randn(3, 4, dtype=dtype), torch.randn(4, dtype=dtype)))])
    )
    found = drawn(Subject(op))
    assert all(taken(Subject(op), case) for case in found)
    assert {case["x"].ndim for case in found} >= {0, 1, 2, 3}
    assert any(case["x"].shape != case["y"].shape for case in found)
    assert [slot.ndim for slot in flat_pattern(Subject(op), torch.float32).slots] == [1, 1]


def test_tensors_changed_in_place_do_not_broadcast_or_repeat(fresh: Fresh) -> None:
    def add_(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    op = opsmith.pointwise(fresh("add_"), mutates_args=("x",))(add_)
    op.register_samples(
        lambda device, dtype: iter([Sample((torch.randn(3, 4, dtype=dtype), torch.randn(4, dtype=dtype)))])
    )
    found = drawn(Subject(op))
    assert len(found) > 10
    for case in found:
        assert torch.broadcast_shapes(case["x"].shape, case["y"].shape) == case["x"].shape
        assert all(stride or size < 2 for stride, size in zip(case["x"].stride(), case["x"].shape, strict=True))


def test_sorted_integers_stay_as_in_the_samples(fresh: Fresh) -> None:
    """As the offsets of rows are: others would be no valid call, and torch might not say so."""

    def segments(x: Tensor, offsets: Tensor) -> Tensor:
        return torch.stack([x[a:b].sum() for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)])

    def samples(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
        yield Sample((torch.randn(9, dtype=dtype), torch.tensor([0, 2, 5, 9])))

    for case in drawn(subject(fresh, segments, samples)):
        assert case["offsets"].tolist() == [0, 2, 5, 9]


@pytest.mark.parametrize("kind", [torch.int64, torch.uint8])
def test_unsorted_integers_stay_within_their_range(fresh: Fresh, kind: torch.dtype) -> None:
    def rows(table: Tensor, index: Tensor) -> Tensor:
        return table[index.to(torch.int64)] * 2

    def samples(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
        yield Sample((torch.randn(5, 3, dtype=dtype), torch.tensor([4, 0, 2], dtype=kind)))

    found = [case for case in drawn(subject(fresh, rows, samples)) if case["index"].numel()]
    assert found and all(0 <= int(case["index"].min()) <= int(case["index"].max()) <= 4 for case in found)
    assert {tuple(case["index"].tolist()) for case in found} != {(4, 0, 2)}, "others are drawn"


def test_numbers_go_beyond_those_of_the_samples(fresh: Fresh) -> None:
    beside = beside_samples(subject(fresh, linear, linear_samples), 4096)
    assert {case["scale"] for case in beside} == {0.0, -1.0}
    for case in beside:
        assert f"scale = {case['scale']}" in case.lines


def test_calls_that_the_reference_refuses_are_not_generated(fresh: Fresh) -> None:
    def even(x: Tensor) -> Tensor:
        if x.shape[0] % 2:
            raise ValueError("even sizes only")
        return x + 1

    op: Op = opsmith.op(fresh("even"))(even)
    op.register_kernel("cpu", lambda x: x + 1 + (x.shape[0] % 2))
    op.register_samples(lambda device, dtype: iter([Sample((torch.randn(4, dtype=dtype),))]))
    (found,) = opsmith.check(op, device="cpu", items=["generated"]).items
    assert found.status == "passed" and "0 more" not in found.message


def test_the_work_of_a_reference_is_counted(fresh: Fresh) -> None:
    def loop(x: Tensor) -> Tensor:
        for _ in range(x.shape[0]):
            x = x + 1
        return x

    def samples(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
        yield Sample((torch.randn(40, dtype=dtype),))

    under_check = subject(fresh, loop, samples)
    assert 40 <= work(under_check, under_check.cases()[0]) <= 44


def test_lengthened_repeats_a_tensor() -> None:
    assert lengthened(torch.arange(6).reshape(2, 3), 1, 7).tolist() == [[0, 1, 2, 0, 1, 2, 0], [3, 4, 5, 3, 4, 5, 3]]
