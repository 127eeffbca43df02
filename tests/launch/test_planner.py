"""The launch planner: the layout of results, the loops, how work is divided, and which sums share a launch."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opsmith.generate.reference import broadcast, result_strides
from opsmith.launch.planner import Pass, Plan, Program, Unplanned

from . import pieces
from .pieces import TUNING

many = settings(max_examples=400, deadline=None)
FLOAT, HALF = (6, 4, 0), (15, 2, 1)  # dtype, item size, whether sums are rounded to it


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


def plan_of(tensors: list[torch.Tensor], likes: list[int] = [-1], dtype: tuple[int, int, int] = FLOAT) -> Plan:  # noqa: B006
    """Results like these slots (-1: of the full shape), from all tensors, on a CPU."""
    return planned_on(pieces.CPU.row(), tensors, likes, dtype)


def planned_on(target: object, tensors: list[torch.Tensor], likes: list[int], dtype: tuple[int, int, int]) -> Plan:
    number, itemsize, rounds = dtype
    reads = [value for slot in range(len(tensors)) for value in (slot, itemsize)]
    results = [value for like in likes for value in (number, like, itemsize, rounds)]
    covers = [1, 0, len(tensors), *range(len(tensors))]  # one condition: all slots, all dimensions
    row = [len(tensors), *reads, len(likes), *results, *covers, len(tensors), 0, 0]
    return Plan(Program(row), target, tensors)


# --- the layout of results -------------------------------------------------------------------------------------------


def without_idle_strides(sizes: tuple[int, ...], strides: tuple[int, ...]) -> View:
    """With zero for the stride of a dimension of size one: torch's own differ by TensorIterator's path."""
    return View(sizes, tuple(0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)))


@many
@given(several(1, 3))
def test_results_are_laid_out_as_torch_lays_them_out(tensors: list[View]) -> None:
    function = [torch.neg, torch.add, torch.addcmul][len(tensors) - 1]
    given_tensors = [each.tensor() for each in tensors]
    result = function(*given_tensors)
    assert without_idle_strides(*plan_of(given_tensors).result(0)) == without_idle_strides(
        tuple(result.shape), result.stride()
    )


@many
@given(several(1, 5, st.one_of(shapes, shapes_with_none)), st.data())
def test_the_planner_and_the_rule_for_fake_tensors_agree(tensors: list[View], data: st.DataObject) -> None:
    given_tensors = [each.tensor() for each in tensors]
    likes = data.draw(st.lists(st.integers(-1, len(tensors) - 1), min_size=1, max_size=4))
    plan = plan_of(given_tensors, likes)
    shape = broadcast([each.sizes for each in tensors])
    assert shape is not None and plan.count == math.prod(shape)
    for number, like in enumerate(likes):
        sizes = shape if like < 0 else tensors[like].sizes
        assert plan.result(number) == (sizes, result_strides(sizes, given_tensors))


@pytest.mark.parametrize(("first", "second"), [((2, 3), (2,)), ((0, 3), (2, 3)), ((1,) * 17, (1,))])
def test_what_one_kernel_cannot_compute_is_unplanned(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    with pytest.raises(Unplanned):
        plan_of([torch.zeros(first), torch.zeros(second)])


def test_sizes_of_zero_and_missing_dimensions_broadcast() -> None:
    assert plan_of([torch.zeros(0, 3), torch.zeros(1, 1, 1)]).result(0)[0] == (1, 0, 3)


# --- loops -----------------------------------------------------------------------------------------------------------


@many
@given(several(1, 4))
def test_merged_loops_visit_the_elements_in_the_same_order(tensors: list[View]) -> None:
    shape = broadcast([each.sizes for each in tensors])
    assert shape is not None
    strides = [each.tensor().expand(shape).stride() for each in tensors]
    loops = pieces.loops(shape, strides)
    assert len(loops.sizes) <= max(1, len(shape))
    plain = [_offsets(shape[::-1], own[::-1]) for own in strides]
    assert [_offsets(loops.sizes, own) for own in loops.strides] == plain


def _offsets(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Where each element is, the first dimension innermost."""
    offsets = [0]
    for size, stride in zip(sizes, strides, strict=True):
        offsets = [offset + index * stride for index in range(size) for offset in offsets]
    return offsets


@pytest.mark.parametrize(
    ("shape", "strides", "mode"),
    [
        ((4, 6), (6, 1), "linear"),
        ((4, 6), (0, 0), "scalar"),
        ((4, 6), (0, 1), "strided1"),
        ((4, 6), (1, 0), "strided0"),
        ((4, 6), (1, 4), "stridedn"),
        ((1, 1), (9, 9), "linear"),
    ],
)
def test_an_operand_is_addressed_by_the_cheapest_mode(
    shape: tuple[int, ...], strides: tuple[int, ...], mode: str
) -> None:
    dense = (shape[1], 1)
    assert pieces.loops(shape, [dense, strides]).modes[1] == mode


@many
@given(size=st.integers(0, 30).flatmap(lambda bits: st.integers(max(1, 2**bits - 2), 2 ** (bits + 1) - 1)),
       index=st.integers(0, 2**31 - 1))  # fmt: skip
def test_an_index_is_divided_by_a_size_with_its_multiplier(size: int, index: int) -> None:
    encoded = pieces.with_multiplier(size)
    assert encoded & 0xFFFFFFFF == size
    bits = (size - 1).bit_length()
    for each in (index, index // size * size, max(0, index // size * size - 1), 2**31 - 1):
        total = each + (each * (encoded >> 32) >> 32)
        assert total < 2**32 and total >> bits == each // size


def test_sums_that_keep_parts_of_the_same_dimensions_share_a_pass() -> None:
    columns, rows, all_of_it, nothing = (1, 0), (0, 1), (1, 1), (0, 0)
    assert pieces.group([columns, nothing]) == ((0,), ("all", "none"))
    assert pieces.group([rows, columns]) == ((1,), ("all", None))  # the columns wait for a pass of their own
    assert pieces.group([all_of_it, columns, rows]) == ((0, 1), ("all", "inner", "outer"))


# --- launches --------------------------------------------------------------------------------------------------------


def launches(plan: Plan, tensors: list[torch.Tensor], results: list[torch.Tensor]) -> list[dict[str, object]]:
    plan.bind(tensors, results, [])
    return [_shown(launch) for launch in plan.passes()]


def _shown(launch: Pass) -> dict[str, object]:
    return {
        "path": launch.layout.path, "modes": launch.layout.modes, "vector": launch.layout.vector,
        "wide": launch.layout.wide, "scratch": launch.scratch_bytes,
        "combines": [each.jobs for each in launch.combines],
    }  # fmt: skip


def test_contiguous_tensors_take_one_launch_without_scratch_memory() -> None:
    x = torch.zeros(16, 64)
    (launch,) = launches(planned_on(pieces.gpu(132).row(), [x], [-1], FLOAT), [x], [torch.empty(16, 64)])
    assert launch == {
        "path": "stream", "modes": ("linear", "linear"), "vector": 4, "wide": False, "scratch": 0, "combines": [],
    }  # fmt: skip


def test_a_tensor_that_is_not_aligned_is_not_moved_in_packs() -> None:
    x = torch.zeros(1025)[1:]
    (launch,) = launches(planned_on(pieces.gpu(132).row(), [x], [-1], FLOAT), [x], [torch.empty(1024)])
    assert launch["vector"] == 1


def test_sums_that_fit_share_a_launch_and_its_combination() -> None:
    x, column, row = torch.zeros(4096, 64), torch.zeros(4096, 1), torch.zeros(64)
    tensors = [x, column, row]
    plan = planned_on(pieces.gpu(132).row(), tensors, [0, 1, 2], FLOAT)
    found = launches(plan, tensors, [torch.empty_like(tensor) for tensor in tensors])
    assert [launch["path"] for launch in found] == ["segment", "column"]
    assert "absent" in found[1]["modes"]  # type: ignore[operator]
    assert found[1]["scratch"] and found[1]["combines"] == [1]


def test_a_sum_in_one_chunk_is_written_by_its_launch_except_where_a_cpu_must_round_it() -> None:
    x, row = torch.zeros(2, 64), torch.zeros(1, 64)
    for target, dtype, combines in [
        (pieces.CPU, FLOAT, []),
        (pieces.CPU, HALF, [1]),
        (pieces.gpu(132), HALF, []),
    ]:
        plan = planned_on(target.row(), [x, row], [1], dtype)
        (launch,) = launches(plan, [x, row], [torch.empty(1, 64)])
        assert launch["combines"] == combines and bool(launch["scratch"]) == bool(combines)


def test_more_than_2_31_elements_need_wide_indices() -> None:
    x = torch.zeros(1).expand(2**31 + 8)
    for size, wide in [(2**31 - 1, False), (2**31 + 8, True)]:
        plan = planned_on(pieces.gpu(132).row(), [x[:size]], [-1], FLOAT)
        (launch,) = launches(plan, [x[:size]], [x[:size]])
        assert launch["wide"] is wide


sizes = st.integers(1, 12).flatmap(lambda bits: st.integers(1, 2 ** (2 * bits)))


@many
@given(columns=sizes, kept=sizes, length=sizes, by_column=st.booleans(), vector=st.sampled_from([1, 2, 4, 8]))
def test_chunks_cover_every_term_of_a_sum_on_a_cpu(
    columns: int, kept: int, length: int, by_column: bool, vector: int
) -> None:
    chunks = pieces.chunks(pieces.CPU, by_column, columns, kept, length)
    assert (chunks.count - 1) * chunks.extent < length <= chunks.count * chunks.extent
    if by_column:
        tile = pieces.CPU.tuning.cpu_tile
        assert (chunks.tiles - 1) * tile < columns <= chunks.tiles * tile


@many
@given(
    count=st.integers(1, 10**6), tiles=st.tuples(*[st.integers(1, 4096)] * 4),
    multiprocessors=st.sampled_from([1, 16, 132]),
)  # fmt: skip
def test_the_blocks_of_a_stream_cover_it_once(
    count: int, tiles: tuple[int, int, int, int], multiprocessors: int
) -> None:
    target = pieces.gpu(multiprocessors)
    limits = [limit * multiprocessors for limit in (target.tuning.very_few, target.tuning.few, target.tuning.some)]
    tile = tiles[sum(count > limit for limit in limits)]
    blocks = pieces.stream_blocks(target, count, tiles)
    assert (blocks - 1) * tile < count <= blocks * tile


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 1 << 20),
    st.sampled_from([1, 7, 200, 1 << 20]),
    st.sampled_from([2, 4, 16, 32, 48, 64, 96, 120, 160]),
    st.booleans(),
    st.sampled_from([1, 8, 16]),
)
def test_a_row_fits_into_the_registers_of_its_team_or_is_read_again(
    packs: int, rows: int, pack_bytes: int, sums: bool, cluster: int
) -> None:
    team = pieces.row_team(packs, rows, pack_bytes, sums, cluster)
    if team.held == 0:  # not even the most threads with the most registers
        assert packs > cluster * 32 * TUNING.row_most_warps * (2 * TUNING.row_bytes // pack_bytes) * 2 // 3
        return
    assert packs <= team.held * team.size, "every pack has a thread"
    assert packs > team.held_before * team.size, "the kernel does not ask whether a thread has these packs"
    assert team.held * pack_bytes <= 2 * TUNING.row_bytes or team.held == 1
    assert team.threads <= 32 * TUNING.row_most_warps and team.cluster <= cluster
    assert 8 * team.held * team.size <= 9 * packs + 8 * 32 * max(1, team.cluster) * team.held, "few threads idle"


def test_few_rows_have_more_threads_each() -> None:
    for packs, threads in ((125, 128), (512, 512), (4096, 4096), (16384, 8192)):
        few, many = pieces.row_team(packs, 2, 16, False), pieces.row_team(packs, 1 << 20, 16, False)
        assert few.size == threads and many.size < threads
