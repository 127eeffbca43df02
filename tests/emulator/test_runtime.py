"""Kernels that spin, recurse, throw and print: how their launches end, and what is reported."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.errors import EmulationError, KernelFault

from .test_speed import on_cores

PATH = Path(__file__).parent / "runtime.cu"
SOURCE = opsmith.cuda_source(PATH)

checked_or_not = pytest.mark.parametrize("checks", [False, True], ids=["without checks", "with checks"])


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Before any test looks at the time."""
    for checks in (False, True):
        with opsmith.emulate(checks=checks):
            SOURCE.does_nothing[1, 1]()


def zeros(count: int = 1) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32)


def lines_of(kernel: str) -> range:
    """The lines from a kernel's first to its last."""
    lines = PATH.read_text().splitlines()
    (first,) = [number for number, line in enumerate(lines, 1) if f"__global__ void {kernel}(" in line]
    last = next(
        number for number, line in enumerate(lines[first - 1 :], first) if line.endswith("}") and line[0] in "_}"
    )
    return range(first, last + 1)


def fault_of(kernel: str, block: int, *args: object, checks: bool, grid: int = 2, timeout: float = 60.0) -> KernelFault:
    with opsmith.emulate(checks=checks, timeout=timeout), pytest.raises(KernelFault) as caught:
        SOURCE[kernel][grid, block](*args)
    return caught.value


# --- Time-outs ------------------------------------------------------------------------------------------------------


@checked_or_not
@pytest.mark.parametrize(
    ("kernel", "threads"),
    [
        ("computes", 1),
        ("waits_for_a_volatile", 1),
        ("waits_for_a_volatile", 64),
        ("meets_at_barriers", 1),
        ("meets_at_barriers", 64),
        ("meets_in_its_warp", 1),
        ("meets_in_its_warp", 64),
        ("meets_itself", 64),
        ("prints_for_ever", 64),
    ],
)
def test_a_kernel_that_never_ends_is_reported_with_its_line(kernel: str, threads: int, checks: bool) -> None:
    given = torch.ones(1) if kernel == "computes" else zeros()
    start = time.monotonic()
    fault = fault_of(kernel, threads, given, checks=checks, timeout=0.2, grid=1)
    assert time.monotonic() - start < 10
    assert fault.kind == "hang" and fault.line in lines_of(kernel)
    assert "has not ended within 0.2 s; 1 of 1 blocks have begun" in str(fault)


@checked_or_not
def test_so_is_one_that_does_nothing_at_all(checks: bool) -> None:
    assert fault_of("spins", 32, zeros(), checks=checks, timeout=0.2).kind == "hang"


@checked_or_not
def test_blocks_that_wait_for_one_at_fault_are_ended(checks: bool) -> None:
    start = time.monotonic()
    fault = fault_of("leaves_others_waiting", 32, zeros(), checks=checks)
    assert fault.kind == "failed assertion"
    assert time.monotonic() - start < 10


@checked_or_not
def test_a_time_out_may_be_infinite(checks: bool) -> None:
    with opsmith.emulate(checks=checks, timeout=float("inf")):
        SOURCE.does_nothing[1, 32]()


# --- Stacks ---------------------------------------------------------------------------------------------------------


@checked_or_not
def test_a_thousand_threads_wait_at_a_barrier_each_deep_in_a_recursion(checks: bool) -> None:
    depth = zeros(2 * 1024)
    with opsmith.emulate(checks=checks):
        SOURCE.waits_in_the_depth[2, 1024](depth, 300)
    assert (depth == 300).all()


@checked_or_not
def test_a_thread_has_as_much_stack_as_a_gpu_has_local_memory(checks: bool) -> None:
    sums = zeros(64)
    with opsmith.emulate(checks=checks):
        SOURCE.has_a_large_array[1, 64](sums)
    assert sums.tolist() == [512 * thread for thread in range(64)]


@checked_or_not
@pytest.mark.parametrize("kernel", ["recurses", "has_too_large_an_array"])
def test_more_than_a_stack_holds_is_a_fault(kernel: str, checks: bool) -> None:
    fault = fault_of(kernel, 32, zeros(64), 10**8 if kernel == "recurses" else 0, checks=checks)
    assert fault.kind == "stack overflow" and fault.line is not None
    assert "the stack of the thread, 1 MiB, is used up" in str(fault)
    with opsmith.emulate(checks=checks):
        SOURCE.does_nothing[4, 256]()  # the thread of the machine that has met it works on


# --- Other ends -----------------------------------------------------------------------------------------------------


@checked_or_not
def test_an_exception_that_leaves_a_kernel_is_a_fault(checks: bool) -> None:
    fault = fault_of("throws", 64, zeros(), checks=checks)
    assert fault.kind == "C++ exception" and fault.thread == (5, 0, 0)
    assert "there is no such bin" in str(fault)


@checked_or_not
def test_an_illegal_instruction_is_a_fault(checks: bool) -> None:
    fault = fault_of("comes_where_nobody_can", 64, zeros(), checks=checks)
    assert fault.kind == "illegal instruction" and fault.thread == (5, 0, 0)
    assert fault.line in lines_of("comes_where_nobody_can")


def test_what_the_processor_refuses_is_a_fault_without_checks_too() -> None:
    fault = fault_of("writes_to", 64, zeros(), None, checks=False)
    assert fault.kind == "bad memory access" and fault.thread == (3, 0, 0) and fault.line in lines_of("writes_to")
    fault = fault_of("divides_by", 64, zeros(128), 0, checks=False)
    assert fault.kind == "division by zero" and fault.line in lines_of("divides_by")


@checked_or_not
def test_a_failed_assertion_is_reported_with_its_line(checks: bool) -> None:
    fault = fault_of("asserts_at_its_end", 32, zeros(32), checks=checks)
    assert fault.kind == "failed assertion" and fault.line in lines_of("asserts_at_its_end")


@checked_or_not
def test_launches_work_after_a_fault(checks: bool) -> None:
    for _ in range(20):
        fault_of("throws", 64, zeros(), checks=checks)
        turned = torch.arange(64, dtype=torch.int32)
        with opsmith.emulate(checks=checks):
            SOURCE.turns_around[1, 64, 64 * 4](turned)
        assert turned.tolist() == list(range(63, -1, -1))


@pytest.mark.parametrize("seed", range(3))
def test_what_a_block_releases_to_itself_orders_no_other_block(seed: int) -> None:
    # On one core the blocks' shared memory lies at the same place.
    with opsmith.emulate(seed=seed), on_cores(1), pytest.raises(KernelFault, match="data race"):
        SOURCE.releases_to_itself[8, 32](zeros())


# --- Where and when -------------------------------------------------------------------------------------------------


@checked_or_not
def test_grids_and_blocks_have_three_dimensions(checks: bool) -> None:
    grid, block = (5, 3, 7), (4, 2, 3)
    blocks, threads = zeros(5 * 3 * 7 * 24), zeros(5 * 3 * 7 * 24)
    with opsmith.emulate(checks=checks):
        SOURCE.numbers_itself[grid, block](blocks, threads)
    assert torch.equal(blocks, torch.arange(105, dtype=torch.int32).repeat_interleave(24))
    assert torch.equal(threads, torch.arange(24, dtype=torch.int32).repeat(105))


@checked_or_not
@pytest.mark.parametrize("grid", [(2**31 - 1, 1, 1), (2**31 - 1, 65535, 65535)])
def test_the_largest_grids_begin_at_once_and_take_no_memory(grid: tuple[int, int, int], checks: bool) -> None:
    with opsmith.emulate(checks=checks):
        SOURCE.does_nothing[1, 1]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with opsmith.emulate(checks=checks, timeout=0.2), pytest.raises(KernelFault, match="hang") as caught:
        SOURCE.does_nothing[grid, 1]()
    assert f"of {grid[0] * grid[1] * grid[2]} blocks have begun" in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


@checked_or_not
def test_a_clock_advances(checks: bool) -> None:
    begin, end = torch.zeros(32, dtype=torch.int64), torch.zeros(32, dtype=torch.int64)
    with opsmith.emulate(checks=checks):
        SOURCE.takes_time[1, 32](begin, end, 100_000)
    assert (end - begin >= 100_000).all()


def test_shared_memory_beyond_all_measure_is_the_machines_fault_and_no_kernels() -> None:
    from opsmith.emulator import launching

    with pytest.MonkeyPatch.context() as patch, opsmith.emulate():
        patch.setattr(launching, "require", lambda *_: None)
        with pytest.raises(EmulationError, match="no GPU has that much shared memory"):
            SOURCE.turns_around[1, 64, 2**24](zeros(64))


# --- Printing -------------------------------------------------------------------------------------------------------


@checked_or_not
def test_what_kernels_print_stands_where_python_prints(checks: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with opsmith.emulate(checks=checks, seed=None):
        print("before")
        SOURCE.prints[1, 2](1)
        print("between")
        SOURCE.prints_plainly[1, 1]()
        print("after")
    assert capsys.readouterr().out.splitlines() == [
        "before", "block 0, thread 0: said", "block 0, thread 1: said", "between", "100%", "a line", "another", "!after"
    ]  # fmt: skip


@checked_or_not
def test_no_text_is_lost_and_no_line_is_broken(checks: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with opsmith.emulate(checks=checks):
        SOURCE.prints[64, 32](40)  # some 2 MB, twice what is kept at a time
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == sorted(
        f"block {b}, thread {t}: said" for b in range(64) for t in range(32) for _ in range(40)
    )


@checked_or_not
def test_a_line_may_be_long(checks: bool, capsys: pytest.CaptureFixture[str]) -> None:
    text = torch.tensor([*(b"x" * 5000), 0], dtype=torch.int8)
    with opsmith.emulate(checks=checks):
        SOURCE.prints_a_long_line[1, 1](text)
    assert capsys.readouterr().out == f"<{'x' * 5000}>"


@checked_or_not
def test_what_was_printed_before_a_fault_is_there(checks: bool, capsys: pytest.CaptureFixture[str]) -> None:
    fault_of("prints_before_it_fails", 1, zeros(), checks=checks, grid=1)
    assert capsys.readouterr().out == "so far so good\n"
