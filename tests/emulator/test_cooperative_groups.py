"""cooperative_groups.h: ranks, shuffles, votes, reductions and barriers of groups, against Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import opsmith

from .header_harness import Faulted, Library

TEXT = Path(__file__).parent / "groups.cu"
RACE = 7


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Library]:
    directory = tmp_path_factory.mktemp("headers")
    return lambda text, checks=True: Library(text, directory, checks=checks)


@pytest.fixture(scope="module", params=[True, False], ids=["checked", "unchecked"])
def groups(request: pytest.FixtureRequest, build: Callable[..., Library]) -> Library:
    return build(TEXT.read_text(), checks=request.param)


def test_a_thread_knows_its_place_in_each_group(groups: Library) -> None:
    out = numpy.zeros((2, 40, 16), numpy.uint32)
    groups("places", 2, (10, 4), out)
    for block in range(2):
        for i in range(40):
            assert out[block, i].tolist() == [
                i, 40, 40, block, i // 10, 4,
                i % 32, i // 32, 2,
                i % 4, 4, i % 32 // 4, 8, i % 8, 4, 8,
            ]  # fmt: skip


def scanned(values: Any, size: int) -> Any:
    """Sums up to each thread of a tile, in the order in which doubling distances give them."""
    result, rank = values.copy(), numpy.arange(len(values)) % size
    distance = 1
    while distance < size:
        before = numpy.roll(result, distance)
        result = numpy.where(rank >= distance, result + before, result)
        distance *= 2
    return result


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_a_tile_shuffles_votes_matches_and_reduces(groups: Library, size: int) -> None:
    n = 128
    x = numpy.random.default_rng(size).standard_normal(n).astype(numpy.float32)
    out = numpy.zeros((20, n), numpy.float32)
    groups(f"tiles_{size}", 1, n, x, out, n)
    i = numpy.arange(n)
    rank, first = i % size, i // size * size
    tiles = x.reshape(-1, size)

    def each(function: Callable[[Any], Any]) -> Any:
        return numpy.repeat([function(tile) for tile in tiles], size)

    def bits(tile: Any) -> int:
        return sum(1 << k for k in range(size) if tile[k] > 0)

    up = each(bits)
    assert (out[0] == x[first + 1 % size]).all()
    assert (out[1] == x[numpy.where(rank >= 3, i - 3, i)]).all()
    assert (out[2] == x[numpy.where(rank + 2 < size, i + 2, i)]).all()
    assert (out[3] == x[numpy.where(rank ^ 5 < size, first + (rank ^ 5), i)]).all()
    assert (out[4] == each(lambda tile: (tile > 1).any())).all()
    assert (out[5] == each(lambda tile: (tile > -1).all())).all()
    assert (out[6] == up.astype(numpy.float32)).all()
    assert (out[7] == numpy.where(x > 0, up, 2**size - 1 - up).astype(numpy.float32)).all()
    same = (up == 0) | (up == 2**size - 1)
    assert (out[8] == numpy.where(same, 2**size - 1, 0).astype(numpy.float32)).all() and (out[9] == same).all()
    summed, product = x.copy(), x.copy()
    for distance in (d for d in (16, 8, 4, 2, 1) if d < size):
        summed, product = summed + summed[i ^ distance], product * product[i ^ distance]
    assert (out[10] == summed).all()
    assert (out[11] == each(numpy.min)).all() and (out[12] == each(numpy.max)).all()
    of_rank = i.reshape(-1, size)
    for at, operation in ((13, numpy.bitwise_xor), (14, numpy.bitwise_and), (15, numpy.bitwise_or)):
        assert (out[at] == numpy.repeat(operation.reduce(of_rank, axis=1), size)).all()
    assert (out[16] == product).all()
    assert (out[17] == of_rank.cumsum(axis=1).ravel()).all()
    assert (out[18] == numpy.where(rank == 0, 0, numpy.roll(scanned(x, size), 1))).all()
    assert (out[19] == x[first]).all()


def test_threads_that_say_the_same_make_a_group_with_gaps(groups: Library) -> None:
    n = 64
    labels = numpy.random.default_rng(5).integers(0, 4, n).astype(numpy.int32)
    out = numpy.zeros((14, n), numpy.int32)
    groups("parts", 1, n, labels, out, n)
    for i in range(n):
        warp = range(i // 32 * 32, i // 32 * 32 + 32)
        members = [k for k in warp if labels[k] == labels[i]]
        rank, leaders = (
            members.index(i),
            sorted({min(k for k in warp if labels[k] == label) for label in labels[list(warp)]}),
        )
        half = [k for k in warp if (labels[k] > 1) == (labels[i] > 1)]
        assert out[:, i].tolist() == [
            rank, len(members), leaders.index(members[0]), len(leaders), members[0], members[max(0, rank - 1)],
            members[rank + 2] if rank + 2 < len(members) else i,
            sum(1 << k for k, member in enumerate(members) if member % 3 == 0), sum(members), sum(members[: rank + 1]),
            min(2, len(members) - rank // 2 * 2), len(half), int(labels[i] > 1), int(0 in half),
        ]  # fmt: skip


def test_barriers_of_groups_order_what_their_threads_write(groups: Library) -> None:
    x = numpy.arange(128, dtype=numpy.float32)
    for seed in range(5):
        out = numpy.zeros(1, numpy.float32)
        groups("sum", 1, 128, x, out, seed=seed)
        assert out[0] == x.sum()


def test_without_the_barrier_of_the_warp_there_is_a_race(build: Callable[..., Library]) -> None:
    text = TEXT.read_text().replace("    warp.sync();\n    if", "    if")
    with pytest.raises(Faulted) as fault:
        build(text)("sum", 1, 128, numpy.zeros(128, numpy.float32), numpy.zeros(1, numpy.float32))
    assert fault.value.kind == RACE


@pytest.mark.parametrize("seed", range(3))
def test_lanes_that_came_together_count_with_one_atomic_operation(groups: Library, seed: int) -> None:
    x = numpy.random.default_rng(seed).integers(-3, 4, 1000).astype(numpy.int32)
    out, count = numpy.zeros(1000, numpy.int32), numpy.zeros(1, numpy.int32)
    groups("compact", 8, 128, x, out, count, 1000, seed=seed)
    assert count[0] == (x > 0).sum() and sorted(out[: count[0]]) == sorted(x[x > 0])


def test_the_same_text_is_cuda() -> None:
    pytest.importorskip("cuda.core", reason="NVRTC is not installed")
    opsmith.cuda_source(TEXT).places.compile(arch="sm_90")
