"""Kernels with one mistake each, of those that people make: the emulator finds every one, and names its line."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import opsmith
from opsmith.errors import KernelFault, LaunchConfigurationError
from opsmith.kernels.cuda_source.source import CudaSource

HERE = Path(__file__).parent / "planted"
SEEDS = (0, 1, 2)
SOURCES = {path.name: opsmith.cuda_source(path) for path in sorted(HERE.glob("*.cu"))}

Triple = tuple[int, int, int]


class Planted(NamedTuple):
    """A kernel, the file it is in, and the fault that it must end in."""

    name: str
    file: str
    kind: str
    launch: Callable[[CudaSource], None]
    block: Triple | None  # where it can only be that one
    thread: Triple | None
    words: str  # that the message must have
    timeout: float

    @property
    def lines(self) -> list[int]:
        """The lines that end in `// here`, of the kernel and of what stands between it and the kernel before it."""
        text = (HERE / self.file).read_text().splitlines()
        ends = [n for n, line in enumerate(text) if line == "}"]
        begins = [n for n, line in enumerate(text) if "__global__" in line]
        (begin,) = [n for n in begins if f" {self.name}(" in text[n]]
        former = max((n for n in begins if n < begin), default=-1)
        after = min((n for n in ends if n > former), default=0) if former >= 0 else 0
        end = min(n for n in ends if n > begin)
        return [n + 1 for n in range(after, end) if text[n].endswith("// here")]


PLANTED: dict[str, Planted] = {}


def planted(
    file: str,
    kind: str,
    *,
    block: Triple | None = None,
    thread: Triple | None = None,
    words: str = "",
    timeout: float = 60.0,
) -> Callable[[Callable[[CudaSource], None]], None]:
    """Declares the launch of the kernel that has the function's name."""

    def declare(launch: Callable[[CudaSource], None]) -> None:
        name = launch.__name__
        PLANTED[name] = Planted(name, file, kind, launch, block, thread, words, timeout)

    return declare


def floats(*shape: int) -> torch.Tensor:
    return torch.rand(shape) + 0.5


# --- bounds.cu ------------------------------------------------------------------------------------------------------

OUT = "out of bounds"


@planted("bounds.cu", OUT, block=(3, 0, 0), thread=(232, 0, 0), words="writes 4 bytes at byte 4000 of x")
def off_by_one(cu: CudaSource) -> None:
    cu.off_by_one[4, 256](floats(1000), 1000)


@planted("bounds.cu", OUT, block=(3, 0, 0), words="of x (float32 [1000], 4000 bytes)")
def missing_bounds_check(cu: CudaSource) -> None:
    cu.missing_bounds_check[4, 256](floats(1000), floats(1024))


@planted("bounds.cu", OUT, block=(0, 0, 0), thread=(0, 0, 0), words="begin 4 bytes before x")
def negative_index(cu: CudaSource) -> None:
    cu.negative_index[4, 256](floats(1000), floats(1000), 1000)


@planted("bounds.cu", OUT, block=(0, 0, 0), thread=(0, 0, 0), words="reads 4 bytes")
def unsigned_index_below_zero(cu: CudaSource) -> None:
    cu.unsigned_index_below_zero[4, 256](floats(1000), floats(1000), 1000)


@planted("bounds.cu", OUT, words="of x (float32 [600], 2400 bytes)")
def slice_taken_for_the_whole(cu: CudaSource) -> None:
    x = floats(1000)
    cu.slice_taken_for_the_whole[4, 256](x[:600], floats(1000), len(x))


@planted("bounds.cu", OUT, words="of y (float32 [500], 2000 bytes)")
def output_too_small(cu: CudaSource) -> None:
    cu.output_too_small[4, 256](floats(1000), floats(500), 1000)


@planted("bounds.cu", OUT, block=(0, 0, 0), thread=(250, 0, 0), words="reads 16 bytes at byte 4000 of x")
def missing_tail_mask(cu: CudaSource) -> None:
    cu.missing_tail_mask[1, 256](floats(1002), floats(1002), 1002)


@planted("bounds.cu", OUT, words="of matrix (float32 [8, 16], 512 bytes)")
def rows_and_columns_swapped(cu: CudaSource) -> None:
    cu.rows_and_columns_swapped[1, (16, 16)](floats(8, 16), 8, 16)


@planted("bounds.cu", OUT, block=(0, 0, 0), thread=(7, 0, 0), words="at byte 400 of table")
def index_from_a_tensor(cu: CudaSource) -> None:
    index = torch.arange(64) % 100
    index[7] = 100
    cu.index_from_a_tensor[1, 64](floats(100), index, floats(64), 64)


@planted("bounds.cu", OUT, words="through a null pointer")
def optional_tensor_not_asked_for(cu: CudaSource) -> None:
    cu.optional_tensor_not_asked_for[1, 64](floats(64), None, floats(64), 64)


@planted("bounds.cu", OUT, block=(0, 0, 0), thread=(63, 0, 0), words="at byte 256 of x")
def in_a_device_function(cu: CudaSource) -> None:
    cu.in_a_device_function[1, 64](floats(64), floats(64), 64)


@planted("bounds.cu", OUT, words="at byte 16 of the variable coefficients")
def constant_past_its_end(cu: CudaSource) -> None:
    cu.constant_past_its_end[1, 32](floats(32), floats(32), 5)


@planted("bounds.cu", "write to a constant", thread=(0, 0, 0), words="the variable coefficients")
def write_to_a_constant(cu: CudaSource) -> None:
    cu.write_to_a_constant[1, 1](2.0)


@planted("bounds.cu", OUT, thread=(8, 0, 0), words="at byte 32 of the variable visits")
def device_variable_past_its_end(cu: CudaSource) -> None:
    cu.device_variable_past_its_end[1, 32](8)


@planted("bounds.cu", OUT, thread=(0, 0, 0), words="writes 260 bytes at byte 0 of y")
def copied_by_memcpy(cu: CudaSource) -> None:
    cu.copied_by_memcpy[1, 32](floats(128), floats(64), 260)


@planted("bounds.cu", "misaligned access", words="16 bytes at an address that is not a multiple of 16")
def misaligned_float4(cu: CudaSource) -> None:
    cu.misaligned_float4[1, 32](floats(130)[1:], floats(32), 129)


@planted("bounds.cu", "misaligned access", words="8 bytes at an address that is not a multiple of 8")
def double_at_four_bytes(cu: CudaSource) -> None:
    cu.double_at_four_bytes[1, 8](torch.zeros(68, dtype=torch.uint8), torch.zeros(8, dtype=torch.float64))


@planted("bounds.cu", "misaligned access", words="8 bytes at an address that is not a multiple of 8")
def carved_without_alignment(cu: CudaSource) -> None:
    cu.carved_without_alignment[1, 32, 33 * 4 + 32 * 8](torch.zeros(32, dtype=torch.float64), 33)


# --- shared.cu ------------------------------------------------------------------------------------------------------

UNSET = "uninitialised shared memory"
RACE = "data race"
PARTIAL = "partial barrier"


@planted("shared.cu", OUT, block=(0, 0, 0), words="of the dynamic shared memory")
def dynamic_shared_too_small(cu: CudaSource) -> None:
    cu.dynamic_shared_too_small[1, 128, 128](floats(128), floats(128))


@planted("shared.cu", OUT, thread=(127, 0, 0), words="at byte 512 of tile, which has 512")
def shared_array_past_its_end(cu: CudaSource) -> None:
    cu.shared_array_past_its_end[1, 128](floats(128), floats(128))


@planted("shared.cu", OUT, words="at byte 512 of row, which has 512")
def into_the_neighbour(cu: CudaSource) -> None:
    cu.into_the_neighbour[1, 128](floats(128), floats(128))


@planted("shared.cu", OUT, thread=(0, 0, 0), words="reads 4 bytes")
def before_the_shared_array(cu: CudaSource) -> None:
    cu.before_the_shared_array[1, 128](floats(128), floats(128))


@planted("shared.cu", UNSET, thread=(0, 0, 0), words="that no thread of the block has written")
def accumulator_never_zeroed(cu: CudaSource) -> None:
    cu.accumulator_never_zeroed[1, 32](floats(100), floats(1), 100)


@planted("shared.cu", UNSET)
def bins_never_zeroed(cu: CudaSource) -> None:
    cu.bins_never_zeroed[1, 128](
        torch.randint(16, (1000,), dtype=torch.int32), torch.zeros(16, dtype=torch.int32), 1000
    )


@planted("shared.cu", UNSET, block=(7, 0, 0))
def tile_half_filled(cu: CudaSource) -> None:
    cu.tile_half_filled[8, 128](floats(1000), floats(8), 1000)


@planted("shared.cu", RACE, block=(0, 0, 0), words="nothing orders the two")
def missing_barrier(cu: CudaSource) -> None:
    cu.missing_barrier[1, 128](floats(128), floats(128))


@planted("shared.cu", RACE, block=(0, 0, 0))
def missing_second_barrier(cu: CudaSource) -> None:
    cu.missing_second_barrier[1, 128](floats(512), floats(128), 4)


@planted("shared.cu", RACE)
def stale_halo(cu: CudaSource) -> None:
    cu.stale_halo[4, 128](floats(500), floats(500), 500)


@planted("shared.cu", RACE, block=(0, 0, 0))
def tree_without_barriers(cu: CudaSource) -> None:
    cu.tree_without_barriers[1, 128](floats(128), floats(1))


@planted("shared.cu", RACE, block=(0, 0, 0), words="it writes a word of shared memory")
def everybody_writes_the_sum(cu: CudaSource) -> None:
    cu.everybody_writes_the_sum[1, 128](floats(128), floats(128))


@planted("shared.cu", RACE, block=(0, 0, 0))
def missing_barrier_on_shorts(cu: CudaSource) -> None:
    shorts = torch.arange(128, dtype=torch.int16)
    cu.missing_barrier_on_shorts[1, 128](shorts, torch.zeros_like(shorts))


@planted("shared.cu", PARTIAL, block=(0, 0, 0), words="of 128 threads have returned")
def barrier_in_a_branch(cu: CudaSource) -> None:
    cu.barrier_in_a_branch[1, 128](floats(128), floats(128))


@planted("shared.cu", PARTIAL, block=(0, 0, 0), words="returned from the kernel")
def return_before_a_barrier(cu: CudaSource) -> None:
    cu.return_before_a_barrier[1, 128](floats(100), floats(100), 100)


@planted("shared.cu", PARTIAL, block=(0, 0, 0), words="returned from the kernel")
def barrier_in_an_uneven_loop(cu: CudaSource) -> None:
    cu.barrier_in_an_uneven_loop[1, 128](floats(200), floats(200), 200)


@planted("shared.cu", PARTIAL, block=(0, 0, 0))
def a_barrier_in_each_branch(cu: CudaSource) -> None:
    cu.a_barrier_in_each_branch[1, 128](floats(128), floats(128))


# --- warps.cu -------------------------------------------------------------------------------------------------------

LANE = "inactive lane"


@planted("warps.cu", LANE, block=(0, 0, 0), words="with mask 0xffffffff")
def lanes_that_are_not_there(cu: CudaSource) -> None:
    cu.lanes_that_are_not_there[1, 20](floats(20), floats(1))


@planted("warps.cu", LANE, words="with mask 0xffffffff")
def shuffle_in_a_branch(cu: CudaSource) -> None:
    cu.shuffle_in_a_branch[1, 32](floats(32), floats(32))


@planted("warps.cu", LANE, words="which the mask does not name")
def lane_outside_of_the_mask(cu: CudaSource) -> None:
    cu.lane_outside_of_the_mask[1, 32](floats(32), floats(32))


@planted("warps.cu", LANE, words="does not name the calling lane")
def mask_without_the_caller(cu: CudaSource) -> None:
    cu.mask_without_the_caller[1, 32](floats(32), floats(32))


@planted("warps.cu", LANE, words="with mask 0xffffffff")
def shuffle_after_a_return(cu: CudaSource) -> None:
    cu.shuffle_after_a_return[1, 32](floats(20), floats(1), 20)


@planted("warps.cu", LANE)
def vote_in_a_branch(cu: CudaSource) -> None:
    cu.vote_in_a_branch[1, 32](torch.arange(32, dtype=torch.int32) % 3, torch.zeros(32, dtype=torch.uint32))


@planted("warps.cu", LANE, words="waits at a barrier of the block")
def barrier_for_some_lanes(cu: CudaSource) -> None:
    cu.barrier_for_some_lanes[1, 32](floats(32), floats(32))


@planted("warps.cu", RACE, block=(0, 0, 0), words="__syncwarp()")
def missing_syncwarp(cu: CudaSource) -> None:
    cu.missing_syncwarp[1, 32](floats(64), floats(1))


@planted("warps.cu", RACE, block=(0, 0, 0))
def volatile_taken_for_a_fence(cu: CudaSource) -> None:
    cu.volatile_taken_for_a_fence[1, 32](floats(32), floats(1))


@planted("warps.cu", RACE, block=(0, 0, 0))
def shuffle_taken_for_a_fence(cu: CudaSource) -> None:
    cu.shuffle_taken_for_a_fence[1, 32](floats(32), floats(32))


# --- races.cu -------------------------------------------------------------------------------------------------------


@planted("races.cu", RACE, words="byte 0 of sum")
def race_on_a_sum(cu: CudaSource) -> None:
    cu.race_on_a_sum[1, 128](floats(100), floats(1), 100)


@planted("races.cu", RACE, block=(0, 0, 0))
def histogram_in_shared_memory(cu: CudaSource) -> None:
    x = torch.randint(16, (1000,), dtype=torch.int32)
    cu.histogram_in_shared_memory[1, 128](x, torch.zeros(16, dtype=torch.int32), 1000)


@planted("races.cu", RACE, words="of bins")
def histogram_in_global_memory(cu: CudaSource) -> None:
    x = torch.randint(16, (1000,), dtype=torch.int32)
    cu.histogram_in_global_memory[8, 128](x, torch.zeros(16, dtype=torch.int32), 1000)


@planted("races.cu", RACE, words="Blocks run in any order")
def two_blocks_in_one_place(cu: CudaSource) -> None:
    cu.two_blocks_in_one_place[2, 128](floats(256), floats(256))


@planted("races.cu", RACE, words="of x")
def stencil_in_place(cu: CudaSource) -> None:
    cu.stencil_in_place[4, 128](floats(500), 500)


@planted("races.cu", RACE, words="of matrix")
def transpose_in_place(cu: CudaSource) -> None:
    cu.transpose_in_place[1, (16, 16)](floats(16, 16), 16)


@planted("races.cu", RACE, words="of partial")
def last_block_without_a_fence(cu: CudaSource) -> None:
    cu.last_block_without_a_fence[8, 32](floats(256), floats(8), floats(1), torch.zeros(1, dtype=torch.uint32))


@planted("races.cu", RACE, words="of count")
def atomic_and_plain(cu: CudaSource) -> None:
    cu.atomic_and_plain[1, 64](torch.zeros(1, dtype=torch.int32), torch.zeros(64, dtype=torch.int32))


@planted("races.cu", RACE, words="of count")
def compaction_without_atomics(cu: CudaSource) -> None:
    cu.compaction_without_atomics[1, 64](floats(64), floats(64), torch.zeros(1, dtype=torch.int32), 64)


# --- values.cu ------------------------------------------------------------------------------------------------------


@planted("values.cu", "signed overflow", words="multiplication")
def index_overflow(cu: CudaSource) -> None:
    cu.index_overflow[1, 32](floats(1), floats(32), 40_000, 70_000)


@planted("values.cu", "signed overflow", words="addition")
def sum_overflow(cu: CudaSource) -> None:
    cu.sum_overflow[1, 1](torch.full((3,), 2**30, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), 3)


@planted("values.cu", "division by zero")
def division_by_zero(cu: CudaSource) -> None:
    x = torch.ones(32, dtype=torch.int32)
    cu.division_by_zero[1, 32](x, x.clone(), 0)


@planted("values.cu", "division by zero")
def remainder_of_zero(cu: CudaSource) -> None:
    x = torch.ones(32, dtype=torch.uint32)
    cu.remainder_of_zero[1, 32](x, x.clone(), 0)


@planted("values.cu", "failed assertion", thread=(7, 0, 0), words="assert(label[threadIdx.x] < classes)")
def failed_assertion(cu: CudaSource) -> None:
    label = torch.arange(32, dtype=torch.int32)
    label[7] = 32
    cu.failed_assertion[1, 32](label, floats(32), 32)


@planted("values.cu", "failed assertion", thread=(7, 0, 0), words="__trap()")
def trapped(cu: CudaSource) -> None:
    x = floats(32)
    x[7] = -1.0
    cu.trapped[1, 32](x)


@planted("values.cu", "hang", block=(0, 0, 0), words="has not ended within 0.2 s", timeout=0.2)
def waits_for_nobody(cu: CudaSource) -> None:
    cu.waits_for_nobody[1, 1](torch.zeros(1, dtype=torch.int32), floats(1))


@planted("values.cu", "hang", block=(0, 0, 0), words="has not ended within 0.2 s", timeout=0.2)
def waits_for_a_plain_flag(cu: CudaSource) -> None:
    cu.waits_for_a_plain_flag[1, 1](torch.zeros(1, dtype=torch.int32), floats(1))


@planted("values.cu", "hang", block=(0, 0, 0), words="has not ended within 0.2 s", timeout=0.2)
def never_ends(cu: CudaSource) -> None:
    cu.never_ends[1, 1](torch.zeros(1, dtype=torch.uint32), 2)


# --- heap.cu --------------------------------------------------------------------------------------------------------


@planted(
    "heap.cu", OUT, thread=(0, 0, 0), words="writes 4 bytes at byte 32 of the 32 bytes that the kernel has allocated"
)
def allocation_overrun(cu: CudaSource) -> None:
    cu.allocation_overrun[1, 1](floats(8), floats(8), 8)


@planted("heap.cu", "use after free", block=(0, 0, 0), words="of the 256 bytes that the kernel has freed at")
def use_after_free(cu: CudaSource) -> None:
    cu.use_after_free[1, 64](floats(64), floats(64))


@planted("heap.cu", "bad free", block=(0, 0, 0), words="it frees memory that has been freed before, at")
def freed_by_every_thread(cu: CudaSource) -> None:
    cu.freed_by_every_thread[1, 64](floats(64), floats(64))


# --- clusters.cu ----------------------------------------------------------------------------------------------------

ABSENT = "absent block"


@planted("clusters.cu", ABSENT, words="rank 4 in a cluster of 4, which has no such block")
def rank_out_of_range(cu: CudaSource) -> None:
    cu.rank_out_of_range[8, 32](floats(8), floats(8))


@planted("clusters.cu", ABSENT, words="writes 4 bytes of the shared memory of rank -1 in a cluster of 4")
def rank_below_zero(cu: CudaSource) -> None:
    cu.rank_below_zero[4, 32](floats(4), floats(4))


@planted("clusters.cu", ABSENT, words="rank 1 in a cluster of 1")
def launched_without_a_cluster(cu: CudaSource) -> None:
    cu.launched_without_a_cluster[2, 32](floats(2), floats(2))


@planted("clusters.cu", ABSENT, words="an address that is not in shared memory")
def global_memory_of_another_block(cu: CudaSource) -> None:
    cu.global_memory_of_another_block[2, 1](floats(2), floats(2))


@planted("clusters.cu", ABSENT, words="Call cluster.sync() after the last access")
def no_last_cluster_barrier(cu: CudaSource) -> None:
    cu.no_last_cluster_barrier[2, 32](floats(2), floats(2))


@planted("clusters.cu", ABSENT, block=(0, 0, 0), words="of the shared memory of block (3, 0, 0), which ")
def read_from_the_last_block(cu: CudaSource) -> None:
    cu.read_from_the_last_block[4, 64](floats(4), floats(32))


@planted("clusters.cu", ABSENT, words="writes 4 bytes of the shared memory of block (0, 0, 0), which ")
def added_to_a_block_that_ends(cu: CudaSource) -> None:
    cu.added_to_a_block_that_ends[4, 32, 4](torch.ones(32, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))


@planted("clusters.cu", ABSENT, words="which may not have begun")
def no_first_cluster_barrier(cu: CudaSource) -> None:
    cu.no_first_cluster_barrier[2, 32](floats(2), floats(2))


@planted("clusters.cu", OUT, thread=(63, 0, 0), words="reads 4 bytes at byte 256 of tile of block (")
def past_a_neighbours_array(cu: CudaSource) -> None:
    cu.past_a_neighbours_array[2, 64](floats(64), floats(128))


@planted("clusters.cu", OUT, words="of the dynamic shared memory of block (")
def past_a_neighbours_dynamic_memory(cu: CudaSource) -> None:
    cu.past_a_neighbours_dynamic_memory[2, 64, 256, 2](floats(64), floats(128))


@planted("clusters.cu", "misaligned access", words="16 bytes at an address that is not a multiple of 16")
def misaligned_in_a_neighbour(cu: CudaSource) -> None:
    cu.misaligned_in_a_neighbour[2, 64](floats(64), floats(64))


@planted("clusters.cu", UNSET, words="reads 4 bytes of shared memory that no thread of the block has written")
def neighbours_array_half_filled(cu: CudaSource) -> None:
    cu.neighbours_array_half_filled[2, 64](floats(64), floats(128))


@planted("clusters.cu", RACE, words="Put cluster.sync() between them")
def block_barrier_for_a_cluster_barrier(cu: CudaSource) -> None:
    cu.block_barrier_for_a_cluster_barrier[2, 64](floats(128), floats(128))


@planted("clusters.cu", RACE, words="a word of the shared memory of block (")
def ring_with_one_buffer(cu: CudaSource) -> None:
    cu.ring_with_one_buffer[4, 32](floats(128), floats(128))


@planted("clusters.cu", RACE)
def cluster_histogram_without_atomics(cu: CudaSource) -> None:
    x = torch.randint(16, (1000,), dtype=torch.int32)
    cu.cluster_histogram_without_atomics[4, 32](x, torch.zeros(16, dtype=torch.int32), 1000)


@planted("clusters.cu", RACE, words="it writes a word of the shared memory of block (0, 0, 0)")
def everybody_writes_to_the_first(cu: CudaSource) -> None:
    cu.everybody_writes_to_the_first[4, 32](floats(4), floats(1))


@planted("clusters.cu", RACE, words="Put cluster.sync() between them")
def relaxed_arrival_for_data(cu: CudaSource) -> None:
    cu.relaxed_arrival_for_data[2, 32](floats(2), floats(2))


@planted("clusters.cu", RACE, words="Put cluster.sync() between them")
def written_after_the_arrival(cu: CudaSource) -> None:
    cu.written_after_the_arrival[2, 32](floats(2), floats(2))


@planted("clusters.cu", RACE, words="a word of the shared memory of block (1, 0, 0)")
def fence_of_the_block_alone(cu: CudaSource) -> None:
    cu.fence_of_the_block_alone[2, 32](floats(1), floats(1))


@planted("clusters.cu", RACE, words="of parts")
def global_memory_between_blocks(cu: CudaSource) -> None:
    cu.global_memory_between_blocks[2, 32](floats(64), floats(64), floats(64))


@planted("clusters.cu", PARTIAL, words="every thread of the cluster must come to its barrier: ")
def cluster_barrier_in_a_branch(cu: CudaSource) -> None:
    cu.cluster_barrier_in_a_branch[2, 64](floats(2), floats(2), 100)


@planted("clusters.cu", PARTIAL, words="of 128 threads have returned from the kernel")
def a_block_returns_early(cu: CudaSource) -> None:
    cu.a_block_returns_early[4, 32](floats(4), floats(4), 3)


@planted("clusters.cu", PARTIAL, block=(0, 0, 0), words="of 64 threads have returned from the kernel")
def a_block_returns_before_a_split_barrier(cu: CudaSource) -> None:
    cu.a_block_returns_before_a_split_barrier[2, 32](floats(32), floats(32))


@planted("clusters.cu", PARTIAL, block=(0, 0, 0), words="of 64 threads have returned from the kernel")
def one_block_has_a_barrier_more(cu: CudaSource) -> None:
    cu.one_block_has_a_barrier_more[2, 32](floats(2), floats(2))


@planted("clusters.cu", PARTIAL, words="32 of 64 threads wait at it")
def barriers_of_block_and_cluster(cu: CudaSource) -> None:
    cu.barriers_of_block_and_cluster[2, 64](floats(64), floats(128))


@planted("clusters.cu", PARTIAL, words="it arrives again without having waited since")
def arrives_twice(cu: CudaSource) -> None:
    cu.arrives_twice[2, 32](floats(64))


@planted("clusters.cu", PARTIAL, words="it waits without having arrived")
def waits_without_arriving(cu: CudaSource) -> None:
    cu.waits_without_arriving[2, 32](floats(64))


@planted("clusters.cu", PARTIAL, words="of 64 threads have returned from the kernel")
def returns_before_a_barrier_of_one(cu: CudaSource) -> None:
    cu.returns_before_a_barrier_of_one[1, 64](floats(60), floats(60), 60)


@planted("clusters.cu", "hang", words="2 of 2 blocks have begun", timeout=0.2)
def waits_for_a_flag_of_nobody(cu: CudaSource) -> None:
    cu.waits_for_a_flag_of_nobody[2, 32](floats(1))


# --- The tests ------------------------------------------------------------------------------------------------------


def found(bug: Planted, seed: int) -> KernelFault:
    torch.manual_seed(0)
    with opsmith.emulate(seed=seed, timeout=bug.timeout), pytest.raises(KernelFault) as caught:
        bug.launch(SOURCES[bug.file])
    return caught.value


@pytest.mark.parametrize("name", PLANTED)
def test_the_mistake_is_found_whatever_the_order_of_threads(name: str) -> None:
    bug = PLANTED[name]
    assert bug.lines, f"no line of {name} in {bug.file} is marked"
    for seed in SEEDS if bug.kind != "hang" else (0,):
        fault = found(bug, seed)
        assert fault.kernel == name
        assert fault.kind == bug.kind, fault
        assert fault.file == str(HERE / bug.file), fault
        assert fault.line in bug.lines, fault
        assert bug.words in str(fault)
        assert bug.block in (None, fault.block), fault
        assert bug.thread in (None, fault.thread), fault


@pytest.mark.parametrize("name", [name for name, bug in PLANTED.items() if bug.kind == RACE])
def test_a_race_names_the_other_access_too(name: str) -> None:
    bug = PLANTED[name]
    (other,) = re.findall(rf"also accesses at {re.escape(str(HERE / bug.file))}:(\d+)", str(found(bug, 0)))
    assert int(other) in bug.lines


def test_every_kernel_of_the_suite_is_run() -> None:
    written = {kernel for source in SOURCES.values() for kernel in source.kernels}
    assert written == PLANTED.keys()
    assert len(written) >= 25


@pytest.mark.parametrize("grid", [0, (4, 0), (1, 1, 0)])
def test_an_empty_grid_is_refused_as_on_a_gpu(grid: object) -> None:
    with opsmith.emulate(), pytest.raises(LaunchConfigurationError, match="Skip the launch for an empty tensor"):
        SOURCES["bounds.cu"].off_by_one[grid, 256](floats(1), 0)


def test_a_fault_leaves_the_tensors_as_they_were_and_the_next_launch_runs() -> None:
    x = floats(1000)
    before = x.clone()
    for _ in range(2):
        with opsmith.emulate(), pytest.raises(KernelFault):
            SOURCES["bounds.cu"].off_by_one[4, 256](x, 1000)
        assert torch.equal(x, before)
    with opsmith.emulate():
        SOURCES["bounds.cu"].off_by_one[4, 256](x, 999)
    assert not x.any()


def test_a_fault_travels_between_processes() -> None:
    fault = found(PLANTED["off_by_one"], 0)
    copy = pickle.loads(pickle.dumps(fault))
    assert str(copy) == str(fault)
    assert (copy.kind, copy.file, copy.line) == (fault.kind, fault.file, fault.line)
    assert (copy.block, copy.thread) == (fault.block, fault.thread)


@pytest.mark.parametrize("name", ["optional_tensor_not_asked_for", "division_by_zero", "failed_assertion"])
def test_what_a_processor_cannot_do_is_found_without_checks_too(name: str) -> None:
    bug = PLANTED[name]
    with opsmith.emulate(checks=False), pytest.raises(KernelFault) as caught:
        bug.launch(SOURCES[bug.file])
    assert caught.value.line in bug.lines
