"""opsmith.bench on a CPU, whole: verified, timed, held against the machine's ceilings; what cannot run is reported."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import opsmith
from opsmith import errors
from opsmith.benchmark import Ceilings, ceilings, cpu
from opsmith.benchmark.cold import first_call_seconds
from opsmith.benchmark.profiling import kernels, own_times
from opsmith.benchmark.results import COLUMNS, processor
from opsmith.benchmark.run import workloads
from opsmith.benchmark.timing import CallSampler

from .ops_to_time import Fresh, cubed, halve_, scale_add

SOME = Ceilings(read=1e10, write=1e10, copy=1e10, matmul={"float32": 1e11})
HUGE = Ceilings(read=1e18, write=1e18, copy=1e18, matmul={"float32": 1e18})


def quiet(texts: list[str]) -> list[str]:
    """Warnings and notes, except those about a machine that others use too."""
    return [text for text in texts if "noisy" not in text]


def test_rows_of_an_op_beside_eager(fresh: Fresh) -> None:
    op = scale_add(fresh)
    reported: list[dict[str, object]] = []
    results = opsmith.bench(op, device="cpu", against=["eager"], ceilings=HUGE, on_row=reported.append)
    assert reported == results.rows, "each row is reported as soon as it is measured"
    assert [(row["direction"], row["contender"]) for row in results.rows] == [
        (direction, name) for direction in ("forward", "backward") for name in ("opsmith", "eager")
    ], "and the empty sample is not timed"
    for row in results.rows:
        assert row.keys() <= COLUMNS.keys()
        assert (row["op"], row["sample"], row["dtype"], row["elements"]) == (op.name, "8x6", "float32", 48)
        assert (row["device"], row["threads"], row["verified"]) == ("cpu", 2, True)
        assert 0 < row["low_us"] <= row["us"] <= row["high_us"] < 1e6
        assert row["bytes"] == (48 + 48 + 6) * 4 and row["limit"] == "memory"
        assert row["share"] == pytest.approx(row["bytes"] / 1e18 / (row["us"] / 1e6), abs=1e-4)
        if row["contender"] == "eager":
            assert 0 < row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
        else:
            assert "speedup" not in row
    json.dumps(results.rows)
    about = results.environment
    assert about["kind"] == "cpu" and about["torch"] == torch.__version__ and about["device"] == processor()
    assert about["ceilings"] == dataclasses.asdict(HUGE) and about["opsmith"] == opsmith.__version__
    assert about["date"][:2] == "20" and about["date"].endswith("+00:00")


def test_threads_are_pinned_while_it_runs_and_as_before_after(fresh: Fresh) -> None:
    before = torch.get_num_threads()
    seen: list[int] = []

    def watched(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return x + 1

    op = opsmith.op(fresh("watched"))(watched)
    op.register_samples(lambda device, dtype: [opsmith.Sample((torch.zeros(4),))])
    results = opsmith.bench(op, device="cpu", against=[], direction="forward", threads=1, ceilings=SOME)
    assert set(seen[1:]) == {1} and torch.get_num_threads() == before, "after the declaration's own call"
    assert results.rows[0]["threads"] == 1 and results.rows[0]["sample"] == "sample 0"


def test_an_op_without_a_cost_has_no_share(fresh: Fresh) -> None:
    (row,) = opsmith.bench(cubed(fresh), device="cpu", against=[], direction="forward", ceilings=SOME).rows
    assert "share" not in row and "bytes" not in row


def test_an_in_place_op_in_every_direction(fresh: Fresh) -> None:
    results = opsmith.bench(
        halve_(fresh), device="cpu", against=["eager"], direction=["forward", "backward", "both"], ceilings=SOME
    )
    assert len(results.rows) == 6 and not quiet(results.warnings)


def test_an_op_whose_results_are_wrong_is_not_timed(fresh: Fresh) -> None:
    op = cubed(fresh)
    op.register_kernel("cpu")(lambda x: x * x * x * 1.001)
    with pytest.raises(errors.WrongResultError, match="opsmith is not timed"):
        opsmith.bench(op, device="cpu", against=[], direction="forward", ceilings=SOME)


def test_a_wrong_contender_is_left_out_and_reported(fresh: Fresh) -> None:
    op = cubed(fresh)
    op.register_kernel("cpu", name="right")(lambda x: x * x * x)
    op.register_kernel("cpu", name="wrong")(lambda x: x * x * x * 1.001)
    results = opsmith.bench(op, device="cpu", against=["wrong", "eager"], direction="forward", ceilings=SOME)
    assert [row["contender"] for row in results.rows] == ["opsmith", "eager"]
    (warning,) = quiet(results.warnings)
    assert "wrong is not timed, because its results differ from the reference's: result:" in warning


def test_an_unavailable_contender_is_reported_once(fresh: Fresh) -> None:
    results = opsmith.bench(cubed(fresh), device="cpu", against=["nobody"], ceilings=SOME)
    assert len(results.rows) == 2 and [text for text in results.warnings if "nobody" in text] == [
        text for text in results.warnings if text.startswith("nobody is not measured")
    ]
    assert len([text for text in results.warnings if "nobody" in text]) == 1


def test_a_baseline_that_fails_is_reported_and_the_rest_is_measured(fresh: Fresh) -> None:
    def by_value(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum().item() > 0 else x  # torch.compile(fullgraph=True) takes no such thing

    op = opsmith.op(fresh("by_value"))(by_value)
    op.register_fake(lambda x: torch.empty_like(x))
    op.register_samples(lambda device, dtype: [opsmith.Sample((torch.ones(4),))])
    results = opsmith.bench(op, device="cpu", against=["compile", "eager"], direction="forward", ceilings=SOME)
    assert [row["contender"] for row in results.rows] == ["opsmith", "eager"]
    assert any(text.startswith("compile is not measured: ") for text in results.warnings), results.warnings


def test_no_backward_where_nothing_has_a_gradient(fresh: Fresh) -> None:
    def is_positive(x: torch.Tensor) -> torch.Tensor:
        return x > 0

    op = opsmith.op(fresh("is_positive"))(is_positive)
    op.register_samples(lambda device, dtype: [opsmith.Sample((torch.randn(4),), {}, "four")])
    results = opsmith.bench(op, device="cpu", against=[], ceilings=SOME)
    assert [row["direction"] for row in results.rows] == ["forward"]
    assert quiet(results.warnings) == [f"{op.name} four: no backward: no input has a gradient"]


def test_what_no_machine_can_do_is_a_fault_of_the_benchmark(fresh: Fresh) -> None:
    op = cubed(fresh)
    op.register_cost(lambda x: opsmith.Cost(bytes=1 << 40))  # for 64 elements
    made = [opsmith.Sample((torch.randn(1 << 20),), {}, "large")]
    (row,) = opsmith.bench(op, device="cpu", samples=made, against=[], direction="forward", ceilings=SOME).rows
    assert row["share"] > 1 and quiet(row["notes"]) == [
        "above the machine's limit: the benchmark or the declared cost is wrong"
    ]


def test_what_stays_in_the_cache_may_be_faster_than_memory(fresh: Fresh) -> None:
    slow = Ceilings(read=1e3, write=1e3, copy=1e3, matmul={"float32": 1e11})
    (row,) = opsmith.bench(scale_add(fresh), device="cpu", against=[], direction="forward", ceilings=slow).rows
    assert quiet(row["notes"]) == ["above the memory bandwidth: its arguments stay in the CPU cache"]


def test_a_limit_of_arithmetic(fresh: Fresh) -> None:
    op = cubed(fresh)
    op.register_cost(lambda x: opsmith.Cost(bytes=8, flops=1000))
    (row,) = opsmith.bench(op, device="cpu", against=[], direction="forward", ceilings=SOME).rows
    assert row["limit"] == "compute" and row["flops"] == 1000


def test_an_unknown_direction(fresh: Fresh) -> None:
    with pytest.raises(ValueError, match="direction 'sideways' is not one of forward, backward, both"):
        opsmith.bench(cubed(fresh), device="cpu", direction="sideways", ceilings=SOME)


def test_the_ceilings_of_this_machine() -> None:
    """Small tensors, so that it takes no time: what comes out is still a memory and a processor."""
    with cpu.pinned(2):
        found = ceilings.measure("cpu", size=1 << 24, matrix=128)
    for rate in (found.read, found.write, found.copy):
        assert 1e8 < rate < 1e13
    assert found.fastest == max(found.read, found.write, found.copy)
    assert found.matmul.keys() == {"float32", "float64", "bfloat16", "float16"}
    assert all(1e7 < rate < 1e14 for rate in found.matmul.values())


def test_which_ceiling_sets_the_least_time() -> None:
    assert SOME.seconds(opsmith.Cost(bytes=10**10), "float32") == (1.0, "memory")
    assert SOME.seconds(opsmith.Cost(bytes=8, flops=10**11), "float32") == (1.0, "compute")
    assert SOME.seconds(opsmith.Cost(bytes=8, flops=10**11), "bfloat16") == (1.0, "compute"), "by the highest rate"
    none = Ceilings(1e10, 1e10, 1e10, {})
    assert none.seconds(opsmith.Cost(bytes=10**10, flops=10**20), "float32") == (1.0, "memory")


def test_calls_take_turns_over_their_arguments_and_a_sample_lasts() -> None:
    seen: list[int] = []
    sampler = CallSampler([lambda: seen.append(0), lambda: seen.append(1), lambda: seen.append(2)], seconds=1e-3)
    seen.clear()
    taken = sampler.sample()
    assert taken > 0 and taken * len(seen) > 2e-4
    assert max(seen.count(each) for each in range(3)) - min(seen.count(each) for each in range(3)) <= 1


def test_what_a_call_runs(fresh: Fresh) -> None:
    op = cubed(fresh)
    (workload,) = workloads(op, "cpu", torch.float32)
    found = kernels(workload, "forward")
    assert "aten::mul" in [each.name for each in found]
    assert math.isclose(sum(each.share for each in found), 1.0)
    assert [each.us for each in found] == sorted((each.us for each in found), reverse=True)


def test_a_first_call_in_a_new_process() -> None:
    row = {"contender": "eager", "dtype": "float64", "sample": "64x2"}
    assert 0 < first_call_seconds(opsmith.ops.square, row, "cpu", 1, resized=True) < 60
    with pytest.raises(RuntimeError, match="not enough values to unpack"):  # a sample that it does not have
        first_call_seconds(opsmith.ops.square, row, "cpu", 1)


def test_a_first_call_is_on_what_the_row_ran_on_with_as_many_threads(tmp_path: Path) -> None:
    # A file named as a module that every process has loaded.
    (tmp_path / "numbers.py").write_text(
        "import opsmith, torch\n"
        "@opsmith.op('bench_tests::plain')\n"
        "def plain(x: torch.Tensor) -> torch.Tensor:\n"
        "    if torch.get_num_threads() != 1 or x.shape != (64,):\n"
        "        raise ValueError(f'{torch.get_num_threads()} threads, {tuple(x.shape)}')\n"
        "    return x + 1\n"
        "@plain.register_samples\n"
        "def _(device, dtype):\n"
        "    yield opsmith.Sample((torch.ones(8, device=device, dtype=dtype),))\n"
    )
    written = tmp_path / "rows.json"
    command = [
        "bench",
        str(tmp_path / "numbers.py"),
        "--device",
        "cpu",
        "--against",
        "",
        "--direction",
        "forward",
        "--threads",
        "1",
    ]
    command += ["--shape", "64", "--cold", "--json", str(written)]
    done = subprocess.run([sys.executable, "-m", "opsmith.cli", *command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "cold_s" in json.loads(written.read_text())["rows"][0], done.stderr


def test_a_first_call_that_cannot_run_is_reported(fresh: Fresh) -> None:
    op = cubed(fresh)  # declared in this test, it is nowhere to import from
    with pytest.raises(RuntimeError, match=f"No op named '{op.name}' is declared"):
        first_call_seconds(op, {"contender": "eager", "dtype": "float32", "sample": "sample 0"}, "cpu", 2)


# --- what a kernel or a caller cannot make bench believe


@pytest.mark.parametrize("against", ["opsmith", "forgetful"])
def test_a_kernel_that_is_right_only_at_first_is_not_timed(fresh: Fresh, against: str) -> None:
    op = cubed(fresh)
    calls = []

    def forgetful(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x * x * x if len(calls) < 5 else torch.zeros_like(x)

    if against == "opsmith":
        op.register_kernel("cpu")(forgetful)
        with pytest.raises(errors.WrongResultError, match=r"called again .*, after it was timed: result"):
            opsmith.bench(op, device="cpu", against=[], direction="forward", ceilings=SOME)
        return
    op.register_kernel("cpu", name="right")(lambda x: x * x * x)
    op.register_kernel("cpu", name="forgetful")(forgetful)
    results = opsmith.bench(op, device="cpu", against=["forgetful"], direction="forward", ceilings=SOME)
    assert [row["contender"] for row in results.rows] == ["opsmith"]
    (warning,) = quiet(results.warnings)
    assert "forgetful is not timed" in warning and "called again with other numbers, after it was timed" in warning


def test_a_kernel_that_remembers_its_results_is_not_timed(fresh: Fresh) -> None:
    op = cubed(fresh)
    results: dict[torch.Size, torch.Tensor] = {}
    op.register_kernel("cpu")(lambda x: results.setdefault(x.shape, x**3).clone())
    with pytest.raises(errors.WrongResultError, match="called again with other numbers"):
        opsmith.bench(op, device="cpu", against=[], direction="forward", ceilings=SOME)


def test_numbers_that_the_reference_refuses_are_not_tried(fresh: Fresh) -> None:
    def logged(x: torch.Tensor) -> torch.Tensor:
        if bool((x < 1).any()):
            raise ValueError("from 1 on")
        return x.log()

    op = opsmith.op(fresh("logged"))(logged)
    op.register_kernel("cpu")(torch.log)
    results = opsmith.bench(
        op,
        device="cpu",
        samples=[opsmith.Sample((torch.full((8,), 1.5),))],
        against=[],
        direction="forward",
        ceilings=SOME,
    )
    assert [row["verified"] for row in results.rows] == [True]


def test_inputs_that_are_not_numbers_are_unchanged_too(fresh: Fresh) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    op = opsmith.op(fresh("doubled"))(doubled)
    samples = [opsmith.Sample((torch.tensor([1.0, math.nan], dtype=each),), name=str(each))
               for each in (torch.float32, torch.bfloat16, torch.complex64)]  # fmt: skip
    options = {"device": "cpu", "against": [], "direction": "forward", "ceilings": SOME}
    assert len(opsmith.bench(op, samples=samples, **options).rows) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1000, 1 << 21])
def test_a_kernel_that_writes_to_its_input_is_not_timed(fresh: Fresh, size: int) -> None:
    op = cubed(fresh)

    def writes(x: torch.Tensor) -> torch.Tensor:
        x.numpy()[:] = 0  # as C++ may, unseen
        return torch.zeros_like(x)

    op.register_kernel("cpu")(writes)
    x = torch.randn(size)
    kept = x.clone()
    with pytest.raises(errors.WrongResultError, match="it writes to x, which is an input"):
        opsmith.bench(op, device="cpu", samples=[opsmith.Sample((x,))], direction="forward", ceilings=SOME)
    assert torch.equal(x, kept), "the caller's tensor is not what it was given"


@pytest.mark.parametrize("size", [1000, 1 << 21])
def test_a_backward_that_writes_to_the_gradient_it_is_given_is_not_timed(fresh: Fresh, size: int) -> None:
    """All contenders are given the same one."""
    op = cubed(fresh)

    def writes(grads: tuple[torch.Tensor], x: torch.Tensor, *, needs: Any) -> torch.Tensor:
        found = 3 * x * x * grads[0]
        grads[0].numpy()[:] = 0
        return found

    op.register_backward("cpu", writes)
    options: dict[str, Any] = {"device": "cpu", "samples": [opsmith.Sample((torch.randn(size),))], "ceilings": SOME}
    assert opsmith.bench(op, direction="forward", against=[], **options).rows
    with pytest.raises(errors.WrongResultError, match="its backward writes to the incoming gradient"):
        opsmith.bench(op, direction="backward", against=[], **options)


@pytest.mark.parametrize(
    "fault", [lambda x: (x**3).double(), lambda x: None, lambda x: x, lambda x: x.add_(1), lambda x: x[0] / 0 + [1]]
)
def test_another_kernel_that_fails_in_any_way_is_left_out(fresh: Fresh, fault: Any) -> None:
    op = cubed(fresh)
    op.register_kernel("cpu", name="right")(lambda x: x * x * x)
    op.register_kernel("cpu", name="fast")(fault)
    results = opsmith.bench(op, device="cpu", against=["fast", "eager"], direction="forward", ceilings=SOME)
    assert [row["contender"] for row in results.rows] == ["opsmith", "eager"]
    assert any("fast is not" in text for text in results.warnings)


def test_one_that_fails_while_it_is_timed_is_left_out(fresh: Fresh) -> None:
    op = cubed(fresh)

    def fails_in_rounds(x: torch.Tensor) -> torch.Tensor:
        if not gc.isenabled():
            raise RuntimeError("out of luck")
        return x * x * x

    op.register_kernel("cpu", name="right")(lambda x: x * x * x)
    op.register_kernel("cpu", name="fast")(fails_in_rounds)
    results = opsmith.bench(op, device="cpu", against=["fast", "eager"], direction="forward", ceilings=SOME)
    assert [row["contender"] for row in results.rows] == ["opsmith", "eager"]
    assert "fast is not measured: RuntimeError: out of luck" in results.warnings


@pytest.mark.parametrize("function", [lambda x: x.detach() * 2, lambda x: x.argsort().to(x.dtype)])
def test_what_has_no_gradient_has_no_backward(fresh: Fresh, function: Any) -> None:
    def flat(x: torch.Tensor) -> torch.Tensor:
        return function(x)  # type: ignore[no-any-return]

    op = opsmith.op(fresh("flat"))(flat)
    results = opsmith.bench(op, device="cpu", samples=[opsmith.Sample((torch.randn(9),))], against=[], ceilings=SOME)
    assert [row["direction"] for row in results.rows] == ["forward"]
    assert any("no backward: no input has a gradient" in text for text in results.warnings)


def test_complex_gradients_are_reported_as_left_out(fresh: Fresh) -> None:
    def turned(x: torch.Tensor) -> torch.Tensor:
        return x * 1j

    op = opsmith.op(fresh("turned"))(turned)
    sample = opsmith.Sample((torch.randn(9, dtype=torch.complex64),))
    results = opsmith.bench(op, device="cpu", samples=[sample], against=[], ceilings=SOME)
    assert [row["direction"] for row in results.rows] == ["forward"]
    assert any("no backward: complex gradients are not timed" in text for text in results.warnings)


def test_a_row_is_measured_once_however_often_it_is_asked_for(fresh: Fresh) -> None:
    dtypes = [torch.float32, torch.float64, torch.float32]
    sample = opsmith.Sample((torch.randn(9),))
    options = {"device": "cpu", "against": " eager , eager", "direction": ["forward", "forward"], "ceilings": SOME}
    for given in ({"samples": [sample]}, {}):
        results = opsmith.bench(cubed(fresh), dtype=dtypes, **options, **given)  # type: ignore[arg-type]
        found = [(row["dtype"], row["contender"]) for row in results.rows]
        assert len(found) == len({*found}) == (2 if given else 4)


@pytest.mark.parametrize("size", [1000, 1 << 21])
def test_what_draws_random_numbers_is_timed_and_not_verified(fresh: Fresh, size: int) -> None:
    def noisily(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)

    op = opsmith.op(fresh("noisily"))(noisily)
    sample = opsmith.Sample((torch.randn(size),), name="one")
    results = opsmith.bench(op, device="cpu", samples=[sample], against=["eager"], direction="forward", ceilings=SOME)
    assert [row["verified"] for row in results.rows] == [False, False]
    assert f"{op.name} draws random numbers: its results are not verified" in results.warnings


def test_samples_with_the_same_name_are_numbered(fresh: Fresh) -> None:
    samples = [opsmith.Sample((torch.randn(size),), name="1M") for size in (4, 8, 16)]
    found = workloads(cubed(fresh), "cpu", torch.float32, samples)
    assert [(each.name, each.elements) for each in found] == [("1M", 4), ("1M (2)", 8), ("1M (3)", 16)]


@pytest.mark.parametrize("device", ["cpu:0", torch.device("cpu"), torch.device("cpu", 0)])
def test_a_device_in_torchs_notation(fresh: Fresh, device: str | torch.device) -> None:
    results = opsmith.bench(cubed(fresh), device=device, against="eager", direction="forward", threads=1, ceilings=SOME)
    assert [(row["contender"], row["device"], row["threads"]) for row in results.rows] == [
        ("opsmith", "cpu", 1), ("eager", "cpu", 1),
    ]  # fmt: skip
    assert results.environment["kind"] == "cpu" and results.environment["threads"] == 1
    results.to_json()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"device": "meta"}, "neither 'cpu' nor 'cuda'"),
        ({"device": "x"}, "neither 'cpu' nor 'cuda'"),
        ({"device": "cpu", "threads": 0}, "at least one is needed"),
    ],
)
def test_a_device_that_cannot_be_measured_is_refused(fresh: Fresh, wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        opsmith.bench(cubed(fresh), ceilings=SOME, **wrong)


def test_an_op_without_a_sample_that_has_elements_says_so(fresh: Fresh) -> None:
    results = opsmith.bench(cubed(fresh), device="cpu", samples=[opsmith.Sample((torch.zeros(0),))], ceilings=SOME)
    assert results.rows == [] and "no sample has elements" in results.warnings[0]


def test_work_of_other_processes_is_noticed() -> None:
    others = cpu.OtherLoad()
    spinning = "import time; until = time.time() + 1.5\nwhile time.time() < until: pass"
    with others.watched():
        subprocess.run([sys.executable, "-c", spinning], check=True)
    assert others.share > 0.5 / len(os.sched_getaffinity(0))
    own = cpu.OtherLoad()
    with own.watched():
        until = time.process_time() + 1.0
        while time.process_time() < until:
            pass
    assert own.share < others.share


def test_a_wide_interval_is_noted(fresh: Fresh) -> None:
    turn = itertools.count()

    def restless(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.001 * (1 + next(turn) % 7 % 3))
        return x + 1

    op = opsmith.op(fresh("restless"))(restless)
    sample = opsmith.Sample((torch.randn(4),), name="one")
    (row,) = opsmith.bench(op, device="cpu", samples=[sample], against=[], direction="forward", ceilings=SOME).rows
    width = (row["high_us"] - row["low_us"]) / (2 * row["us"])
    assert (width > 0.05) == any(": the machine is noisy" in note for note in row["notes"])


def test_the_time_that_a_launch_waits_for_the_previous_one_does_not_count() -> None:
    """Microseconds: sums from 0 to 100; what combines them from 5 on, done 3 after; another stream is apart."""
    spans = [(7, "combine", 5.0, 103.0), (7, "sums", 0.0, 100.0), (9, "other", 40.0, 90.0), (7, "sums", 110.0, 200.0)]
    assert own_times(spans) == {"sums": (2, 190.0), "combine": (1, 3.0), "other": (1, 50.0)}


def test_a_kernel_that_serves_no_call_is_named(fresh: Fresh) -> None:
    @opsmith.op(fresh("doubled"))
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    doubled.register_kernel("cpu", lambda x: NotImplemented if x.numel() > 100 else x * 2)
    for count, named in ((64, False), (256, True)):
        sample = opsmith.Sample((torch.randn(count),), name="one")
        found = opsmith.bench(doubled, device="cpu", samples=[sample], against=[], direction="forward")
        assert any("one forward: no kernel serves this call" in text for text in found.warnings) is named
