"""On a GPU: kernels are timed by replayed graphs, beside ceilings that kernels reach; host and memory apart."""

from __future__ import annotations

import pytest
import torch

import opsmith
from opsmith.benchmark import Ceilings, ceilings, gpu
from opsmith.benchmark.profiling import kernels
from opsmith.benchmark.workload import Workload

from .ops_to_time import Fresh, cubed, halve_, scale_add

pytestmark = pytest.mark.gpu

SOME = Ceilings(read=4e12, write=4e12, copy=4e12, matmul={"float32": 5e13})


@pytest.mark.timing
def test_a_graph_is_timed_as_events_around_many_calls_would_time_it() -> None:
    first, second = (torch.zeros(1 << 26, device="cuda") for _ in range(2))  # 256 MiB each: far beyond the L2
    sampler = gpu.GraphSampler([lambda: second.copy_(first)])
    taken = sorted(sampler.sample() for _ in range(15))[7]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20):
        second.copy_(first)
    end.record()
    end.synchronize()
    assert taken == pytest.approx(begin.elapsed_time(end) / 1e3 / 20, rel=0.15)


@pytest.mark.timing
def test_a_sample_is_the_time_of_one_call_however_many_a_graph_has() -> None:
    tensors = [torch.zeros(1 << 24, device="cuda") for _ in range(8)]
    alone = gpu.GraphSampler([lambda: tensors[0].mul_(1.0)])
    eight = gpu.GraphSampler([lambda tensor=tensor: tensor.mul_(1.0) for tensor in tensors])
    medians = [sorted(each.sample() for _ in range(15))[7] for each in (alone, eight)]
    assert medians[0] == pytest.approx(medians[1], rel=0.35)


def test_the_ceilings_of_a_gpu() -> None:
    found = ceilings.measure("cuda", size=1 << 28, matrix=4096)
    for rate in (found.read, found.write, found.copy):
        assert 1e11 < rate < 2e13
    assert found.fastest < 2 * found.copy
    assert found.matmul["bfloat16"] > found.matmul["float32"] > 1e12


def test_rows_have_kernel_time_host_time_and_memory(fresh: Fresh) -> None:
    op = scale_add(fresh)
    elements = 1 << 22
    samples = [
        opsmith.Sample((torch.randn(8, 6, device="cuda"), torch.randn(6, device="cuda")), {}, "small"),
        opsmith.Sample((torch.randn(elements // 64, 64, device="cuda"), torch.randn(64, device="cuda")), {}, "large"),
    ]
    results = opsmith.bench(
        op, device="cuda", dtype=torch.float32, samples=samples, against=["eager"], ceilings=SOME,
        direction=["forward", "backward", "both"],
    )  # fmt: skip
    rows = {(row["sample"], row["direction"], row["contender"]): row for row in results.rows}
    assert len(rows) == 12
    for (sample, _, _), row in rows.items():
        assert row["device"] == torch.cuda.get_device_name() and row["threads"] is None
        assert 0 < row["low_us"] <= row["us"] <= row["high_us"]
        assert ("host_us" in row) is (sample == "small")
    small, large = (rows[name, "forward", "opsmith"] for name in ("small", "large"))
    assert small["us"] < small["host_us"], "a launch costs the host more than so few elements cost the GPU"
    assert large["us"] > 2 * elements * 4 / 1e13 * 1e6, "no memory gives ten terabytes a second"
    assert large["held_bytes"] == elements * 4
    assert large["peak_bytes"] == pytest.approx(elements * 4, rel=0.1), "the result, and nothing else of its size"
    eager = rows["large", "forward", "eager"]
    assert eager["peak_bytes"] == pytest.approx(2 * elements * 4, rel=0.1) and eager["speedup"] > 1.2, (
        "x * scale exists"
    )
    both = rows["large", "both", "opsmith"]
    assert both["us"] > large["us"]


def test_an_in_place_op_is_captured(fresh: Fresh) -> None:
    samples = [opsmith.Sample((torch.randn(4096, device="cuda"),), {}, "4096")]
    results = opsmith.bench(
        halve_(fresh), device="cuda", samples=samples, dtype=torch.float32, against=["eager"], ceilings=SOME,
        direction=["forward", "backward", "both"],
    )  # fmt: skip
    assert len(results.rows) == 6


def test_a_baseline_that_cannot_be_captured_is_left_out_and_reported(fresh: Fresh) -> None:
    op = cubed(fresh)
    op.register_kernel("cuda")(lambda x: x * x * x)

    def waits(x: torch.Tensor) -> torch.Tensor:
        return x * x * x if x.sum().item() == x.sum().item() else x

    waiting = opsmith.op(fresh("waits"))(waits)
    waiting.register_fake(lambda x: torch.empty_like(x))
    waiting.register_kernel("cuda")(lambda x: x * x * x)
    samples = [opsmith.Sample((torch.randn(4096, device="cuda"),), {}, "4096")]
    options = {"device": "cuda", "dtype": torch.float32, "samples": samples, "direction": "forward", "ceilings": SOME}
    results = opsmith.bench(waiting, against=["eager"], **options)
    assert [row["contender"] for row in results.rows] == ["opsmith"]
    assert any(text.startswith("eager is not measured: ") for text in results.warnings)
    after = opsmith.bench(op, against=["eager"], **options)
    assert [row["contender"] for row in after.rows] == ["opsmith", "eager"], "and what comes next is measured"


def test_a_profile_has_the_kernels_of_a_call_and_no_time_twice(fresh: Fresh) -> None:
    """What combines partial sums begins early and waits: its time is not the reduction's once more."""
    op, elements = scale_add(fresh), 1 << 24
    args = torch.randn(elements // 64, 64, device="cuda"), torch.randn(64, device="cuda")
    found = kernels(Workload(op, op.signature.bind(args, {}), "made"), "backward")
    names = [each.name for each in found]
    assert any("column" in name for name in names) and any("combine" in name for name in names)
    combine = next(each for each in found if "combine" in each.name)
    assert combine.calls == 1 and combine.share < 0.3 and sum(each.share for each in found) == pytest.approx(1)
