"""Kernels of the usual patterns, free of faults: in any order of threads they give torch's numbers and no alarm."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import opsmith
from opsmith.errors import NvrtcNotFoundError
from opsmith.kernels.cuda_source.source import CudaSource
from opsmith.toolchain import find_nvrtc

HERE = Path(__file__).parent / "right"
SEEDS = range(10)
SOURCES = {path.name: opsmith.cuda_source(path) for path in sorted(HERE.glob("*.cu"))}

Results = dict[str, tuple[Tensor, Tensor]]  # by name, what the kernel gave and what it should


class Right(NamedTuple):
    """A kernel's file, and a run of it with what it must give."""

    file: str
    run: Callable[[CudaSource], Results]


RIGHT: dict[str, Right] = {}


def right(file: str) -> Callable[[Callable[[CudaSource], Results]], None]:
    """Declares a run of the kernel that has the function's name."""

    def declare(run: Callable[[CudaSource], Results]) -> None:
        RIGHT[run.__name__] = Right(file, run)

    return declare


def only(given: Tensor, wanted: Tensor) -> Results:
    return {"y": (given, wanted)}


def blocks(n: int, threads: int) -> int:
    return -(-n // threads)


def integers(high: int, n: int, low: int = 0) -> Tensor:
    return torch.randint(low, high, (n,), dtype=torch.int32)


def count(n: int = 1) -> Tensor:
    return torch.zeros(n, dtype=torch.int32)


# --- matrices.cu ----------------------------------------------------------------------------------------------------


@right("matrices.cu")
def tiled_matmul(cu: CudaSource) -> Results:
    a, b, c = torch.randn(37, 50), torch.randn(50, 45), torch.empty(37, 45)
    cu.tiled_matmul[(3, 3), (16, 16)](a, b, c, 37, 45, 50)
    return only(c, a @ b)


@right("matrices.cu")
def double_buffered_matmul(cu: CudaSource) -> Results:
    a, b, c = torch.randn(37, 50), torch.randn(50, 45), torch.empty(37, 45)
    cu.double_buffered_matmul[(3, 3), (16, 16)](a, b, c, 37, 45, 50)
    return only(c, a @ b)


@right("matrices.cu")
def transpose(cu: CudaSource) -> Results:
    x, y = torch.randn(70, 40), torch.empty(40, 70)
    cu.transpose[(2, 3), (32, 8)](x, y, 70, 40)
    return only(y, x.T.contiguous())


@right("matrices.cu")
def stencil_1d(cu: CudaSource) -> Results:
    x, y = torch.randn(500), torch.empty(500)
    weights = torch.tensor([0.0625, 0.25, 0.375, 0.25, 0.0625])
    cu.stencil_1d[4, 128](x, y, 500)
    return only(y, torch.nn.functional.conv1d(x[None, None], weights[None, None], padding=2)[0, 0])


@right("matrices.cu")
def stencil_2d(cu: CudaSource) -> Results:
    x, y = torch.randn(40, 50), torch.empty(40, 50)
    weights = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])
    cu.stencil_2d[(4, 3), (16, 16)](x, y, 40, 50)
    return only(y, torch.nn.functional.conv2d(x[None, None], weights[None, None], padding=1)[0, 0])


@right("matrices.cu")
def permute_3d(cu: CudaSource) -> Results:
    x, y = torch.randn(9, 10, 11), torch.empty(11, 10, 9)
    cu.permute_3d[(3, 3, 6), (4, 4, 2)](x, y, 9, 10, 11)
    return only(y, x.permute(2, 1, 0).contiguous())


# --- reductions.cu --------------------------------------------------------------------------------------------------


@right("reductions.cu")
def warp_reduction(cu: CudaSource) -> Results:
    x, y = torch.randn(10, 75), torch.empty(10)
    cu.warp_reduction[3, 128](x, y, 10, 75)
    return only(y, x.sum(1))


@right("reductions.cu")
def block_reduction(cu: CudaSource) -> Results:
    x, y = torch.randn(1000), torch.empty(4)
    cu.block_reduction[4, 256](x, y, 1000)
    return only(y.sum(), x.sum())


@right("reductions.cu")
def last_block_reduction(cu: CudaSource) -> Results:
    x, partial, y, arrived = torch.randn(2000), torch.empty(6), torch.empty(()), torch.zeros(1, dtype=torch.uint32)
    cu.last_block_reduction[6, 128](x, partial, y, arrived, 2000)
    return {"y": (y, x.sum()), "arrived": (arrived, torch.zeros_like(arrived))}


@right("reductions.cu")
def softmax(cu: CudaSource) -> Results:
    x = 10 * torch.randn(5, 300)
    y = torch.empty_like(x)
    cu.softmax[5, 128](x, y, 300)
    return only(y, x.softmax(1))


@right("reductions.cu")
def layer_norm(cu: CudaSource) -> Results:
    x, weight, bias = torch.randn(5, 300), torch.randn(300), torch.randn(300)
    y = torch.empty_like(x)
    cu.layer_norm[5, 128, 300 * 4](x, weight, bias, y, 300, 1e-5)
    return only(y, torch.nn.functional.layer_norm(x, (300,), weight, bias, 1e-5))


@right("reductions.cu")
def rms_norm(cu: CudaSource) -> Results:
    x, weight = torch.randn(5, 300), torch.randn(300)
    y = torch.empty_like(x)
    cu.rms_norm[5, 128](x, weight, y, 300, 1e-5)
    return only(y, torch.nn.functional.rms_norm(x, (300,), weight, 1e-5))


@right("reductions.cu")
def group_reduction(cu: CudaSource) -> Results:
    x, y = torch.randn(500), torch.empty(4)
    cu.group_reduction[4, 128](x, y, 500)
    return only(y.sum(), x.sum())


@right("reductions.cu")
def argmax(cu: CudaSource) -> Results:
    x, y = torch.randn(6, 300), count(6)
    cu.argmax[6, 128](x, y, 300)
    return only(y, x.argmax(1).int())


@right("reductions.cu")
def counting_barriers(cu: CudaSource) -> Results:
    x, y = torch.randn(4, 96), count(4)
    x[1], x[2] = 1.0, -1.0
    cu.counting_barriers[4, 96](x, y, 0.0)
    above = x > 0.0
    return only(y, (4 * above.sum(1) + 2 * above.all(1) + above.any(1)).int())


# --- scans.cu -------------------------------------------------------------------------------------------------------


def by_blocks(x: Tensor, size: int) -> Tensor:
    return torch.cat([part.cumsum(0) for part in x.split(size)]).int()


@right("scans.cu")
def hillis_steele(cu: CudaSource) -> Results:
    x = integers(100, 1000)
    y = torch.empty_like(x)
    cu.hillis_steele[4, 256, 2 * 256 * 4](x, y, 1000)
    return only(y, by_blocks(x, 256))


@right("scans.cu")
def blelloch(cu: CudaSource) -> Results:
    x = integers(100, 1000)
    y = torch.empty_like(x)
    cu.blelloch[2, 256](x, y, 1000)
    return only(y, by_blocks(x, 512) - x)


@right("scans.cu")
def scan_by_warps(cu: CudaSource) -> Results:
    x = integers(100, 1000)
    y = torch.empty_like(x)
    cu.scan_by_warps[4, 256](x, y, 1000)
    return only(y, by_blocks(x, 256))


@right("scans.cu")
def chained_scan(cu: CudaSource) -> Results:
    x = integers(100, 2000)
    y = torch.empty_like(x)
    cu.chained_scan[8, 256](x, y, count(), count(8), 2000)
    return only(y, x.cumsum(0).int())


@right("scans.cu")
def look_back(cu: CudaSource) -> Results:
    x, y = integers(100, 20), count(20)
    cu.look_back[20, 32](x, y, count(), count(20), count(20))
    return only(y, x.cumsum(0).int())


@right("scans.cu")
def histogram_in_shared_memory(cu: CudaSource) -> Results:
    x, y = integers(60, 3000), count(60)
    cu.histogram_in_shared_memory[4, 128, 60 * 4](x, y, 60, 3000)
    return only(y, x.bincount(minlength=60).int())


@right("scans.cu")
def histogram_in_global_memory(cu: CudaSource) -> Results:
    x, y = integers(60, 2000), count(60)
    cu.histogram_in_global_memory[8, 256](x, y, 2000)
    return only(y, x.bincount(minlength=60).int())


@right("scans.cu")
def histogram_by_match(cu: CudaSource) -> Results:
    x, y = integers(20, 2000), count(20)
    cu.histogram_by_match[8, 256](x, y, 2000)
    return only(y, x.bincount(minlength=20).int())


@right("scans.cu")
def compaction_by_ballot(cu: CudaSource) -> Results:
    x, kept = torch.randn(1000), count()
    y = torch.zeros_like(x)
    cu.compaction_by_ballot[4, 256](x, y, kept, 1000)
    return only(y[: int(kept)].sort()[0], x[x > 0].sort()[0])


@right("scans.cu")
def compaction_by_active_mask(cu: CudaSource) -> Results:
    x, kept = torch.randn(1000), count()
    y = torch.zeros_like(x)
    cu.compaction_by_active_mask[4, 256](x, y, kept, 1000)
    return only(y[: int(kept)].sort()[0], x[x > 0].sort()[0])


@right("scans.cu")
def persistent_rows(cu: CudaSource) -> Results:
    x, y = torch.randn(20, 100), torch.empty(20)
    cu.persistent_rows[3, 64](x, y, count(), 20, 100)
    return only(y, x.sum(1))


@right("scans.cu")
def maximum_by_compare_and_swap(cu: CudaSource) -> Results:
    x, y = torch.randn(2000), torch.full((), -torch.inf)
    cu.maximum_by_compare_and_swap[8, 256](x, y, 2000)
    return only(y, x.max())


@right("scans.cu")
def sum_by_compare_and_swap(cu: CudaSource) -> Results:
    x, y = torch.randn(500, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    cu.sum_by_compare_and_swap[4, 128](x, y, 500)
    return only(y, x.sum())


@right("scans.cu")
def critical_section(cu: CudaSource) -> Results:
    x, y = torch.randn(1000), torch.zeros(())
    cu.critical_section[8, 128](x, y, count(), 1000)
    return only(y, x.sum())


@right("scans.cu")
def lock_of_every_thread(cu: CudaSource) -> Results:
    y = count()
    cu.lock_of_every_thread[3, 64](y, count())
    return only(y, torch.full_like(y, 3 * 64))


@right("scans.cu")
def warp_to_warp(cu: CudaSource) -> Results:
    x, y = torch.randn(32), torch.empty(32)
    cu.warp_to_warp[1, 64](x, y)
    return only(y, x.flip(0))


# --- language.cu ----------------------------------------------------------------------------------------------------


@right("language.cu")
def grid_stride(cu: CudaSource) -> Results:
    x = torch.randn(5000)
    y = torch.empty_like(x)
    cu.grid_stride[4, 256](x, y, 3.0, 5000)
    return only(y, 3.0 * x)


@right("language.cu")
def copy_by_fours(cu: CudaSource) -> Results:
    x = torch.randn(1003)
    y = torch.empty_like(x)
    cu.copy_by_fours[4, 64](x, y, 1003)
    return only(y, x)


@right("language.cu")
def half_pairs(cu: CudaSource) -> Results:
    x, y = torch.randn(200, dtype=torch.float16), torch.randn(200, dtype=torch.float16)
    z = torch.empty_like(x)
    cu.half_pairs[1, 128](x, y, z, 100)
    return only(z, (x.double() * y.double() + 1.0).half())


@right("language.cu")
def bfloat16_axpy(cu: CudaSource) -> Results:
    x, y = torch.randn(200).bfloat16(), torch.randn(200).bfloat16()
    wanted = (1.5 * x.float() + y.float()).bfloat16()  # 1.5 x is exact in float32, so rounded once as by fmaf
    cu.bfloat16_axpy[2, 128](x, y, 1.5, 200)
    return only(y, wanted)


@right("language.cu")
def half_tile(cu: CudaSource) -> Results:
    x = torch.randn(128).half()
    y = torch.empty_like(x)
    cu.half_tile[1, 64](x, y)
    return only(y, x.flip(0))


@right("language.cu")
def carved(cu: CudaSource) -> Results:
    x, y, z = torch.randn(3, 50, dtype=torch.float64), torch.randn(3, 50), torch.randint(256, (3, 50)).byte()
    out = torch.empty_like(x)
    cu.carved[3, 50, 50 * (8 + 4 + 1)](x, y, z, out, 50)
    return only(out, (x + y + z).flip(1))


@right("language.cu")
def lambdas(cu: CudaSource) -> Results:
    x = torch.randn(300)
    y = torch.empty_like(x)
    cu.lambdas[3, 128](x, y, 0.25, 300)
    return only(y, torch.tanh(torch.tanh(x + 0.25) + 0.25))


@right("language.cu")
def said(cu: CudaSource) -> Results:
    cu.said[2, 32](torch.tensor([1.25, 2.5]))
    return {}


@right("language.cu")
def timed(cu: CudaSource) -> Results:
    x, y, ticks = torch.rand(32), torch.empty(32), torch.full((32,), -1)
    cu.timed[1, 32](x, y, ticks)
    return {"y": (y, x.sqrt()), "ticks": (ticks >= 0, torch.ones(32, dtype=torch.bool))}


@right("language.cu")
def counted(cu: CudaSource) -> Results:
    before, after = torch.zeros((), dtype=torch.uint64), torch.zeros((), dtype=torch.uint64)
    cu.counted[1, 32](before)
    cu.counted[1, 32](after)
    return only(after.long() - before.long(), torch.tensor(1))


def collatz(value: int) -> int:
    return 0 if value == 1 else 1 + collatz(value // 2 if value % 2 == 0 else 3 * value + 1)


@right("language.cu")
def divergent(cu: CudaSource) -> Results:
    x, y = integers(1000, 64, low=1), count(64)
    cu.divergent[1, 64](x, y)
    return only(y, torch.tensor([collatz(value) for value in x.tolist()], dtype=torch.int32).flip(0))


def hash_of(value: int) -> int:
    value = (value ^ 61) ^ (value >> 16)
    value = value * 9 % 2**32
    value ^= value >> 4
    value = value * 0x27D4EB2D % 2**32
    return value ^ (value >> 15)


@right("language.cu")
def hashed(cu: CudaSource) -> Results:
    x = torch.arange(1, 300).to(torch.uint32)
    y = torch.zeros_like(x)
    cu.hashed[3, 128](x, y, len(x))
    return only(y.long(), torch.tensor([hash_of(value) for value in x.tolist()]))


@right("language.cu")
def two_roles(cu: CudaSource) -> Results:
    x = torch.randn(6, 32)
    y = torch.empty_like(x)
    cu.two_roles[1, 64](x, y, 6)
    return only(y, 2.0 * x.flip(1))


@right("language.cu")
def optional_bias(cu: CudaSource) -> Results:
    x, bias = torch.randn(100), torch.randn(100)
    with_bias, without = torch.empty_like(x), torch.empty_like(x)
    cu.optional_bias[1, 128](x, bias, with_bias, 100)
    cu.optional_bias[1, 128](x, None, without, 100)
    return {"with": (with_bias, x + bias), "without": (without, x)}


# --- templates.cu ---------------------------------------------------------------------------------------------------


@right("templates.cu")
def unrolled_sum(cu: CudaSource) -> Results:
    x = torch.randn(400, dtype=torch.float64)
    y = torch.empty(100, dtype=torch.float64)
    cu["unrolled_sum<double, 4, true>"][1, 128](x, y, 400)
    return only(y, (x * x).view(100, 4).sum(1))


@right("templates.cu")
def block_maximum(cu: CudaSource) -> Results:
    x, y = integers(10**6, 1000), count()
    cu["block_maximum<int, 128>"][1, 128](x, y, 1000)
    return only(y, x.max()[None])


# --- clusters.cu ----------------------------------------------------------------------------------------------------


@right("clusters.cu")
def cluster_histogram(cu: CudaSource) -> Results:
    x, bins = integers(64, 3000), count(64)
    cu.cluster_histogram[8, 64, 16 * 4, 4](x, bins, len(x), 16)
    return only(bins, torch.bincount(x, minlength=64).int())


@right("clusters.cu")
def cluster_row_sums(cu: CudaSource) -> Results:
    x, y = torch.randint(-8, 8, (3, 5000)).float(), torch.empty(3)
    cu.cluster_row_sums[24, 128](x, y, 5000)
    return only(y, x.sum(1))


@right("clusters.cu")
def ring_exchange(cu: CudaSource) -> Results:
    x, y = torch.randn(3 * 4 * 32), torch.empty(3 * 4 * 32)
    cu.ring_exchange[12, 32](x, y)
    return only(y.view(3, 4, 32), x.view(3, 4, 32).sum(1, keepdim=True).expand(3, 4, 32))


@right("clusters.cu")
def sixteen_blocks(cu: CudaSource) -> Results:
    x, y = torch.randn(2, 16 * 100), torch.empty(2, 16 * 100)
    cu.sixteen_blocks[32, 32, 400, 16](x, y, 1600)
    return only(y, x.softmax(1))


@right("clusters.cu")
def values_of_all_sizes(cu: CudaSource) -> Results:
    y = count(6)
    cu.values_of_all_sizes[6, 32](y)
    return only(y, torch.full((6,), 5, dtype=torch.int32))


@right("clusters.cu")
def places_in_clusters(cu: CudaSource) -> Results:
    grid, block, cluster = (4, 6, 2), (3, 2, 2), (2, 3, 2)
    y = count(math.prod(grid) * math.prod(block) * 20)
    cu.places_in_clusters[grid, block](y)
    wanted = []
    for bz, by, bx in itertools.product(*map(range, reversed(grid))):
        inside = bx % 2, by % 3, bz % 2
        of_cluster = bx // 2, by // 3, bz // 2
        rank = inside[0] + 2 * (inside[1] + 3 * inside[2])
        for tz, ty, tx in itertools.product(*map(range, reversed(block))):
            thread = tx + 3 * (ty + 2 * tz)
            places = [i * n + t for i, n, t in zip(inside, block, (tx, ty, tz), strict=True)]
            number = of_cluster[0] + 2 * (of_cluster[1] + 2 * of_cluster[2])
            wanted.append(
                [rank, rank * 12 + thread, 12, 144, *inside, *cluster, *places, 6, 6, 4, *of_cluster, number + 100 * 4]
            )
    return only(y.view(-1, 20), torch.tensor(wanted, dtype=torch.int32))


@right("clusters.cu")
def split_barrier(cu: CudaSource) -> Results:
    x, y = torch.randn(2, 4, 64), torch.empty(2, 4, 64)
    cu.split_barrier[8, 64](x, y)
    return only(y, x.flip(1) + 2 * x)


@right("clusters.cu")
def cluster_of_one_block(cu: CudaSource) -> Results:
    x, y = torch.randn(2, 64), torch.empty(2, 64)
    cu.cluster_of_one_block[2, 64](x, y)
    return only(y, x.flip(1) + 1)


@right("clusters.cu")
def flag_in_a_neighbour(cu: CudaSource) -> Results:
    x, y = torch.randn(3, 2, 32), torch.empty(3, 32)
    cu.flag_in_a_neighbour[6, 32](x, y)
    return only(y, x[:, 0])


@right("clusters.cu")
def last_cluster(cu: CudaSource) -> Results:
    x, y = torch.randn(12), torch.empty(1)
    cu.last_cluster[12, 32](x, torch.empty(12), y, torch.zeros(1, dtype=torch.uint32))
    return only(y[0], x.sum())


@right("clusters.cu")
def large_shared_memory(cu: CudaSource) -> Results:
    elements = 25_000
    x, y = torch.randn(4, elements), torch.empty(4, elements)
    cu.large_shared_memory[4, 128, 4 * elements, 2](x, y, elements)
    return only(y, x[[1, 0, 3, 2]].flip(1))


@right("clusters.cu")
def many_barriers(cu: CudaSource) -> Results:
    y = count(4)
    cu.many_barriers[4, 32](y, 100)
    return only(y, torch.tensor([100, 101, 100, 101], dtype=torch.int32))


# --- The tests ------------------------------------------------------------------------------------------------------


def check(name: str, checks: bool, seed: int) -> None:
    each = RIGHT[name]
    torch.manual_seed(seed)
    with opsmith.emulate(checks=checks, seed=seed):
        for result, (given, wanted) in each.run(SOURCES[each.file]).items():
            torch.testing.assert_close(
                given, wanted, msg=lambda message, result=result: f"{result}, seed {seed}: {message}"
            )


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes_every_check_in_every_order(name: str) -> None:
    for seed in SEEDS:
        check(name, True, seed)


@pytest.mark.parametrize("name", RIGHT)
def test_without_checks_it_gives_the_same(name: str) -> None:
    check(name, False, 0)


@pytest.mark.parametrize("checks", [True, False])
def test_what_a_kernel_prints_is_there_when_the_launch_has_ended(
    checks: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    print("before", flush=True)
    with opsmith.emulate(checks=checks):
        RIGHT["said"].run(SOURCES["language.cu"])
    assert sorted(capfd.readouterr().out.splitlines()) == ["before", "block 0 has 1.25", "block 1 has 2.50"]


def test_a_constant_set_from_python_is_what_kernels_find() -> None:
    source = opsmith.cuda_source(
        "__constant__ float slope[2] = {1.0f, 2.0f};\n"
        "__global__ void bend(float* x) { x[threadIdx.x] *= slope[threadIdx.x % 2]; }\n"
    )
    for checks in (True, False):
        before, after = torch.ones(4), torch.ones(4)
        with opsmith.emulate(checks=checks):
            source.bend[1, 4](before)
            source.set_constant("slope", [3.0, -5.0])
            source.bend[1, 4](after)
            source.set_constant("slope", torch.tensor([1.0, 2.0]))
        assert before.tolist() == [1.0, 2.0, 1.0, 2.0]
        assert after.tolist() == [3.0, -5.0, 3.0, -5.0]


@pytest.mark.parametrize("path", sorted(HERE.parent.glob("[pr]*/*.cu")), ids=lambda path: path.stem)
def test_the_kernels_of_both_suites_are_cuda_to_nvidias_compiler_too(path: Path) -> None:
    try:
        find_nvrtc()
    except NvrtcNotFoundError as error:
        pytest.skip(f"NVRTC is not installed: {error}")
    source = opsmith.cuda_source(path)
    compiled = source.compile(arch="sm_90")
    assert set(compiled.attributes) == {name for name in source.kernels if path.stem != "templates"}


class OnGpu(TorchFunctionMode):
    """Inside, tensors are made on the CPU and moved: the numbers are those of a run on the CPU with the same seed."""

    MAKERS = frozenset(
        getattr(torch, name)
        for name in ("arange", "empty", "full", "ones", "rand", "randint", "randn", "tensor", "zeros")
    )

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        return made.cuda() if function in self.MAKERS else made


@pytest.mark.gpu
@pytest.mark.parametrize("name", RIGHT)
def test_a_gpu_gives_the_same_numbers(name: str) -> None:
    each = RIGHT[name]
    torch.manual_seed(0)
    with opsmith.emulate():
        emulated = each.run(SOURCES[each.file])
    torch.manual_seed(0)
    with OnGpu():
        on_gpu = each.run(SOURCES[each.file])
    assert on_gpu.keys() == emulated.keys()
    for result, (given, _) in on_gpu.items():
        assert given.is_cuda
        torch.testing.assert_close(given.cpu(), emulated[result][0])


def test_every_kernel_of_the_suite_is_run() -> None:
    written = {kernel for source in SOURCES.values() for kernel in source.kernels}
    assert written == RIGHT.keys()
    assert len(written) >= 25
