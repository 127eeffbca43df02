"""Samples of any size are cut down to calls that every item can use."""

from __future__ import annotations

import math
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import opsmith
from opsmith import Op, Sample
from opsmith.checks import to_junit
from opsmith.checks.reproduction import setup
from opsmith.checks.subject import Subject

from .stranger_ops import OPS

Fresh = Callable[[str], str]
MOST = 512


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("most", [4096, 128])
def test_a_stranger_s_sample_becomes_a_small_call(name: str, most: int) -> None:
    subject = Subject(OPS[name])
    (case,) = [case for case in subject.cases(torch.float32, most) if case.numel]
    assert case.numel <= most
    assert all(result.isfinite().all() for result in subject.reference(case.values) if result.is_floating_point())


@pytest.mark.parametrize("name", OPS)
def test_the_lines_of_a_small_call_make_it_again(name: str) -> None:
    subject = Subject(OPS[name])
    case = subject.cases(torch.float32, 4096)[0]
    bound: dict[str, object] = {}
    exec("\n".join([*setup(subject.op), *case.lines]), bound)
    made = [bound[argument.name] for argument in case.arguments]
    for mine, theirs in zip(made, case.values, strict=True):
        if isinstance(theirs, str):
            assert mine == theirs
        else:
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


sizes = st.integers(1, 3000)


@settings(max_examples=40, deadline=None)
@given(batch=sizes, rows=sizes, heads=st.sampled_from([1, 2, 3, 8, 12]), width=st.integers(1, 64))
def test_divisibility_is_preserved(batch: int, rows: int, heads: int, width: int) -> None:
    rows = max(1, min(rows, 2_000_000 // (batch * heads * width)))
    case = small(split_heads, torch.zeros(batch, rows, heads * width), heads)
    assert case.numel <= MOST


@settings(max_examples=40, deadline=None)
@given(parts=st.lists(st.integers(1, 400), min_size=1, max_size=4), rows=st.integers(1, 900))
def test_parts_still_add_up(parts: list[int], rows: int) -> None:
    case = small(split_and_joined, torch.zeros(rows, sum(parts)), parts)
    assert sum(case["parts"]) == case["x"].shape[1]
    assert case.numel <= MOST


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 5000), width=st.integers(1, 300), count=st.integers(1, 5000), small_table=st.booleans())
def test_indexes_stay_within_their_table(rows: int, width: int, count: int, small_table: bool) -> None:
    index = torch.arange(count) % (min(rows, 3) if small_table else rows)
    case = small(looked_up, torch.zeros(rows, width), index)
    assert int(case["index"].max()) < case["table"].shape[0]
    assert case.numel <= MOST


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(0, 500), min_size=1, max_size=30), width=st.integers(1, 40))
def test_offsets_stay_in_order_and_within_the_rows(lengths: list[int], width: int) -> None:
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    total = max(1, int(offsets[-1]))
    case = small(segments, torch.zeros(total, width), offsets)
    found = case["offsets"]
    assert bool((found.diff() >= 0).all()) and int(found[-1]) <= case["x"].shape[0]
    assert case.numel <= MOST


def small(op: Op, *args: object):
    op.register_samples(lambda device, dtype: iter([Sample(args)]))
    (case,) = Subject(op).cases(torch.float32, MOST)
    return case


@opsmith.op("shrinking::split_heads")
def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.view(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


@opsmith.op("shrinking::split_and_joined")
def split_and_joined(x: torch.Tensor, parts: list[int]) -> torch.Tensor:
    return torch.cat(x.split(parts, -1)[::-1], -1)


@opsmith.op("shrinking::looked_up")
def looked_up(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return F.embedding(index, table)


@opsmith.op("shrinking::segments")
def segments(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    total = torch.cat([torch.zeros_like(x[:1]), x.cumsum(0)])
    return total[offsets[1:]] - total[offsets[:-1]]


def test_a_report_is_not_ok_if_a_sample_cannot_be_cut_down(fresh: Fresh) -> None:
    @opsmith.op(fresh("fixed"))
    def fixed(x: torch.Tensor) -> torch.Tensor:
        if math.prod(x.shape) != 1000 * 700:
            raise ValueError("700000 elements, no more and no fewer")
        return x * 2

    fixed.register_samples(lambda device, dtype: iter([Sample((torch.ones(1000, 700, dtype=dtype),))]))
    report = opsmith.check(fixed, items=["values", "sizes", "aliasing", "generated"])
    assert not report.failures and report.passed
    assert "aliasing" in [item.name for item in report.uncovered]
    assert not report.ok and not report
    assert "aliasing could not be checked: no sample is small enough" in str(report)
    suite = ElementTree.fromstring(to_junit([report]))
    assert suite.get("failures") == str(len(report.uncovered)) and "could not be checked" in to_junit([report])
    with pytest.raises(pytest.fail.Exception, match="could not be checked: no sample is small enough"):
        opsmith.testing.check_op(fixed, items=["aliasing"])


def test_every_kind_of_sample_is_covered_including_large_ones(fresh: Fresh) -> None:
    @opsmith.op(fresh("kinds"))
    def kinds(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return x if bias is None else x + bias

    @kinds.register_samples
    def _(device, dtype):
        yield Sample((torch.ones(4, dtype=dtype),))
        yield Sample((torch.ones(3000, dtype=dtype),))  # of the first one's kind
        yield Sample((torch.ones(900, 70, dtype=dtype), torch.ones(70, dtype=dtype)))

    shapes = [tuple(case["x"].shape) for case in Subject(kinds).cases(torch.float32, 100)]
    assert shapes[0] == (4,) and len(shapes) == 2 and len(shapes[1]) == 2


def test_a_report_without_a_passed_item_is_not_ok(fresh: Fresh) -> None:
    op = opsmith.op(fresh("plain"))(looked_up.reference)
    op.register_samples(lambda device, dtype: iter([Sample((torch.ones(3, 2, dtype=dtype), torch.tensor([0, 2])))]))
    report = opsmith.check(op, emulate=True)
    assert not report.passed and not report.failures
    assert not report.ok and "nothing was checked" in str(report)


def test_an_op_whose_reference_takes_only_float32_neither_fails_nor_passes(fresh: Fresh) -> None:
    """The truth is computed in float64. Where there is none, that is said."""

    @opsmith.op(fresh("single"))
    def single(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float32:
            raise TypeError("float32 only")
        return torch.tanh(x)

    single.register_samples(lambda device, dtype: iter([Sample((torch.randn(6, 5),))]))
    report = opsmith.check(single, items=["values", "gradients", "vmap", "forward_mode", "second_gradients"])
    assert not report.failures
    assert not report.ok and "the reference does not take float64" in report.uncovered[0].message
