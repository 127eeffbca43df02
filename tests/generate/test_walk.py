"""How a generated kernel walks its tensors: layout.py against torch, and the C++ launcher against both."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opsmith import runtime
from opsmith.generate import emit_cpp, layout, tuning
from opsmith.generate.native import MODES, tuning_numbers
from opsmith.runtime import native

from . import programs

many = settings(max_examples=400, deadline=None)


class View(NamedTuple):
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def tensor(self) -> torch.Tensor:
        reach = sum(max(0, size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))
        return torch.zeros(reach + 1).as_strided(self.sizes, self.strides)


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...]) -> View:
    """A tensor that broadcasts to `shape`: some leading dimensions missing, some of size one, permuted, with gaps, with
    repeated dimensions, and with any stride where the size is one."""
    sizes = [draw(st.sampled_from([size, size, 1])) for size in shape[draw(st.integers(0, len(shape))) :]]
    strides = [0] * len(sizes)
    step = 1
    for dimension in draw(st.permutations(range(len(sizes)))):
        gap = draw(st.sampled_from([1, 1, 1, 2, 3]))
        kind = draw(st.sampled_from(["dense", "dense", "dense", "repeated", "odd"]))
        strides[dimension] = step * gap
        if kind == "repeated" and sizes[dimension] > 1:
            strides[dimension] = 0
        elif kind == "odd" and sizes[dimension] == 1:
            strides[dimension] = draw(st.integers(0, 40))
        else:
            step *= gap * max(1, sizes[dimension])
    return View(tuple(sizes), tuple(strides))


shapes = st.lists(st.sampled_from([1, 2, 2, 3, 5]), max_size=5).map(tuple)
shapes_with_none = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4).map(tuple)


@st.composite
def several(draw: st.DrawFn, least: int, most: int, of: st.SearchStrategy[tuple[int, ...]] = shapes) -> list[View]:
    shape = draw(of)
    return [draw(views(shape)) for _ in range(draw(st.integers(least, most)))]


# --- against torch ----------------------------------------------------------------------------------------------------


def laid_out(tensors: list[View]) -> View:
    """What layout.py says of a fresh result of these tensors."""
    shape = layout.broadcast([each.sizes for each in tensors])
    assert shape is not None
    order = layout.order_of(shape, [(each.sizes, each.strides) for each in tensors])
    return _told(shape, layout.dense_strides(shape, order, len(shape)))


def _told(sizes: tuple[int, ...], strides: tuple[int, ...]) -> View:
    """With zero for a stride that nothing steps by: along a dimension of size one, torch's own differ by the road that
    TensorIterator took."""
    return View(sizes, tuple(0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)))


@many
@given(several(1, 3))
def test_results_are_laid_out_as_torch_lays_them_out(tensors: list[View]) -> None:
    function = [torch.neg, torch.add, torch.addcmul][len(tensors) - 1]
    result = function(*[each.tensor() for each in tensors])
    assert laid_out(tensors) == _told(tuple(result.shape), result.stride())


def test_what_does_not_broadcast_is_told() -> None:
    assert layout.broadcast([(2, 3), (2,)]) is None
    assert layout.broadcast([(0, 3), (2, 3)]) is None
    assert layout.broadcast([(0, 3), (1, 1, 1)]) == (1, 0, 3)


@many
@given(several(1, 4))
def test_a_walk_visits_the_elements_of_a_tensor_in_the_same_order_for_all(tensors: list[View]) -> None:
    shape = layout.broadcast([each.sizes for each in tensors])
    assert shape is not None
    order = layout.order_of(shape, [(each.sizes, each.strides) for each in tensors])
    strides = [layout.expanded(each.sizes, each.strides, shape) for each in tensors]
    walk = layout.merged(shape, order, strides)
    plain = list(zip(*[_offsets([shape[d] for d in order], [own[d] for d in order]) for own in strides], strict=True))
    assert list(zip(*[_offsets(walk.sizes, own) for own in walk.strides], strict=True)) == plain


def _offsets(sizes: list[int] | tuple[int, ...], strides: list[int] | tuple[int, ...]) -> list[int]:
    offsets = [0]
    for size, stride in zip(sizes, strides, strict=True):
        offsets = [offset + index * stride for index in range(size) for offset in offsets]
    return offsets


# --- the C++ launcher -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library() -> native.Library:
    found = runtime._library()
    if found is None:
        pytest.skip(f"the C++ runtime is not built: {runtime.reason()}; run `make setup`")
    found.call("tell_tuning", native.row(tuning_numbers()))
    return found


class Probed(NamedTuple):
    shape: tuple[int, ...]
    order: tuple[int, ...]
    result_strides: list[tuple[int, ...]]
    walk: layout.Walk
    modes: list[str]
    passes: list[tuple[tuple[int, ...], list[str | None]]]  # dimensions kept, roles


def in_cpp(library: native.Library, tensors: list[View], results: list[tuple[int, ...]]) -> Probed:
    numbers = [len(tensors)]
    for sizes, strides in tensors:
        numbers += [len(sizes), *sizes, *strides]
    numbers.append(len(results))
    for size in results:
        numbers += [len(size), *size]
    written = (ctypes.c_int64 * 4096)()
    left = iter(written[: library.call("probe_walk", native.row(numbers), len(numbers), written)])

    def several() -> tuple[int, ...]:
        return tuple(next(left) for _ in range(next(left)))

    shape, order = several(), several()
    result_strides = [several() for _ in results]
    walked = several()
    operands = range(len(tensors) + len(results))
    walk = layout.Walk(walked, tuple(several() for _ in operands))
    modes = [MODES[next(left)] for _ in operands]
    waiting = sum(_product(size) != _product(shape) for size in results)
    passes = []
    while waiting:
        bits = next(left)
        kept = tuple(d for d in range(len(walked)) if bits >> d & 1)
        roles = [MODES[next(left)] for _ in range(waiting)]
        passes.append((kept, [None if role == "absent" else role.removeprefix("reduced:") for role in roles]))
        waiting = roles.count("absent")
    assert next(left, None) is None
    return Probed(shape, order, result_strides, walk, modes, passes)


def in_python(tensors: list[View], results: list[tuple[int, ...]]) -> Probed:
    shape = layout.broadcast([each.sizes for each in tensors])
    assert shape is not None
    order = layout.order_of(shape, [(each.sizes, each.strides) for each in tensors])
    result_strides = [layout.dense_strides(size, order, len(shape)) for size in results]
    everyone = [*tensors, *map(View, results, result_strides)]
    walk = layout.merged(shape, order, [layout.expanded(each.sizes, each.strides, shape) for each in everyone])
    modes = []
    for steps in walk.strides:
        mode = layout.mode_of(walk, steps)
        modes.append(f"strided{steps[0] if steps[0] in (0, 1) else 'n'}" if mode == layout.STRIDED else mode)
    passes = []
    waiting = [
        steps
        for size, steps in zip(results, walk.strides[len(tensors) :], strict=True)
        if _product(size) != _product(shape)
    ]
    while waiting:
        grouping = layout.group(walk, waiting)
        passes.append((grouping.kept, list(grouping.roles)))
        waiting = [steps for steps, role in zip(waiting, grouping.roles, strict=True) if role is None]
    return Probed(shape, order, result_strides, walk, modes, passes)


def _product(sizes: tuple[int, ...]) -> int:
    return int(torch.Size(sizes).numel())


@st.composite
def tensors_and_results(draw: st.DrawFn) -> tuple[list[View], list[tuple[int, ...]]]:
    """Some tensors, and results of the full shape or of the shape of one of them."""
    tensors = draw(several(1, 5, st.one_of(shapes, shapes_with_none)))
    shape = layout.broadcast([each.sizes for each in tensors])
    assert shape is not None
    return tensors, draw(st.lists(st.sampled_from([shape, *(each.sizes for each in tensors)]), min_size=1, max_size=4))


@many
@given(call=tensors_and_results())
def test_walks_are_the_same_in_cpp(library: native.Library, call: tuple[list[View], list[tuple[int, ...]]]) -> None:
    assert in_cpp(library, *call) == in_python(*call)


def test_what_does_not_broadcast_is_told_in_cpp(library: native.Library) -> None:
    numbers = [2, 1, 3, 1, 1, 2, 1, 0]
    assert library.call("probe_walk", native.row(numbers), len(numbers), native.row([0] * 64)) == -1


@many
@given(size=st.integers(0, 30).flatmap(lambda bits: st.integers(max(1, 2**bits - 2), 2 ** (bits + 1) - 1)),
       index=st.integers(0, 2**31 - 1))  # fmt: skip
def test_an_index_is_divided_by_a_size_as_its_word_says(library: native.Library, size: int, index: int) -> None:
    word = layout.size_word(size)
    assert library.call("probe_size_word", size) & (2**64 - 1) == word < 2**64
    assert word & 0xFFFFFFFF == size
    bits = (size - 1).bit_length()
    for each in (index, index // size * size, max(0, index // size * size - 1), 2**31 - 1):
        total = each + (each * (word >> 32) >> 32)
        assert total < 2**32 and total >> bits == each // size


sizes = st.integers(1, 12).flatmap(lambda bits: st.integers(1, 2 ** (2 * bits)))


@many
@given(columns=sizes, kept=sizes, length=sizes, by_column=st.booleans())
def test_reductions_are_cut_alike_in_cpp(
    library: native.Library, columns: int, kept: int, length: int, by_column: bool
) -> None:
    written = native.row([0] * 4)
    library.call("probe_chunks", 0, by_column, native.row([columns, kept, length]), written)
    if by_column:
        assert tuple(written[:3]) == emit_cpp.column_chunks(columns, kept, length)
    else:
        assert tuple(written[:2]) == emit_cpp.segment_chunks(length, kept)


@many
@given(
    columns=sizes, kept=sizes, length=sizes, by_column=st.booleans(), vector=st.sampled_from([1, 2, 4, 8]),
    multiprocessors=st.sampled_from([16, 84, 132]),
)  # fmt: skip
def test_on_a_gpu_too(
    library: native.Library, columns: int, kept: int, length: int, by_column: bool, vector: int, multiprocessors: int
) -> None:
    columns *= vector
    written = native.row([0] * 4)
    library.call("probe_chunks", 1, by_column, native.row([columns, kept, length, vector, multiprocessors]), written)
    chunks = [*written[:3]]
    path = "column" if by_column else "segment"
    variant = layout.Variant(path, (), 0, 0, vector, True)
    if by_column:
        assert tuple(chunks) == tuning.column_chunks(columns, kept, length, vector, multiprocessors)
        words = [columns, kept, length, chunks[0], chunks[1]]
    else:
        assert tuple(chunks[:2]) == tuning.segment_chunks(length, kept, vector, multiprocessors)
        words = [length, kept, chunks[0], chunks[1]]
    assert written[3] == tuning.geometry(_NOTHING, variant, words, multiprocessors)[0][0]


@many
@given(
    count=st.integers(1, 10**6),
    vector=st.sampled_from([1, 4, 8]),
    multiprocessors=st.sampled_from([0, 16, 132]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_a_stream_is_cut_alike_too(
    library: native.Library, count: int, vector: int, multiprocessors: int, dtype: torch.dtype
) -> None:
    variant = layout.Variant("stream", ("linear", "linear"), 0, 0, vector, True)
    program = programs.mish(dtype)
    blocks = library.call("probe_stream", count, *tuning.tiles(program, variant), multiprocessors)
    assert blocks == tuning.geometry(program, variant, [0, 0, count], multiprocessors)[0][0]


class _Nothing(NamedTuple):
    """A program as far as a launch's geometry asks for it."""

    reads: tuple[()] = ()
    results: tuple[()] = ()
    scalars: tuple[()] = ()


_NOTHING: object = _Nothing()
