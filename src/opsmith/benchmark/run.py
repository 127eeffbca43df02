"""opsmith.bench: an op and its baselines, verified first, then timed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from ..checks.calls.compile import compiling_here
from ..checks.outcome import first_line
from ..errors import RandomReferenceError, UnavailableError, WrongResultError
from ..operator import child_process
from ..operator.op import Op
from ..operator.samples import Sample
from . import ceilings as limits
from . import cpu, gpu
from .ceilings import Ceilings
from .contenders import BASELINES, OPSMITH, Function, contender, replayable
from .environment import environment
from .results import Results, Row
from .sampling import Sampler, SamplingError, indistinguishable, interval, measured
from .stage import Stage
from .timing import Timing, time_together
from .verifying import Verifier, is_random
from .workload import DIRECTIONS, MOST_COPIES, Workload, call_for

SMALL = 64 << 10
"""Bytes of inputs up to which the host time of a call is reported."""
UNSURE = "uncertain by"
NOISY, CROWDED = 0.05, 0.15
"""Thresholds for a warning: half of an interval relative to its median, and the share of the CPUs that others used."""


def bench(
    op: Op,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | Sequence[torch.dtype] | None = None,
    samples: Sequence[Sample] | None = None,
    against: str | Sequence[str] = ("eager", "compile"),
    direction: str | Sequence[str] = ("forward", "backward"),
    threads: int = 2,
    ceilings: Ceilings | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> Results:
    """Times an op and its baselines, and reports what share of the machine's limit each reaches.

    >>> results = opsmith.bench(opsmith.ops.mish, dtype=torch.bfloat16, against=["eager", "compile-max"])
    >>> results.rows[0]["us"], results.rows[0]["share"]

    Results are verified before anything is timed. On a GPU the time is that of the kernels, by replayed CUDA graphs
    over arguments rotated past the cache; host time, memory and the ceilings are measured apart, in the same run.

    Args:
        op: what is measured; with it each of `against`: "eager", "compile", "compile-max", "liger", or the name of one
            of the op's kernels.
        device: "cpu" or "cuda"; None: the GPU where there is one.
        dtype: one or several; None: float32, and bfloat16 on a GPU.
        samples: what to run on, instead of the op's own samples.
        direction: "forward", "backward", "both" (one after the other, as in training), or several.
        threads: of a CPU, pinned.
        ceilings: the machine's, where they have been measured already.
        on_row: called with each row as it is done.
    """
    if child_process.returns_at_once():
        return Results(warnings=[f"{op.name}: {child_process.REASON}"])
    where = _kind(device)
    directions = list(dict.fromkeys([direction] if isinstance(direction, str) else direction))
    others = [name.strip() for name in (against.split(",") if isinstance(against, str) else against)]
    if threads < 1:
        raise ValueError(f"threads={threads}: at least one is needed")
    for each in directions:
        if each not in DIRECTIONS:
            raise ValueError(f"direction={each!r} is not one of {', '.join(DIRECTIONS)}")
    default = (torch.float32, torch.bfloat16) if where == "cuda" else (torch.float32,)
    dtypes = [dtype] if isinstance(dtype, torch.dtype) else list(dict.fromkeys(dtype or default))
    if samples is not None:
        dtypes = dtypes[:1]  # they have their own
    compiles = where == "cpu" and any(name.startswith("compile") for name in others)
    here = compiling_here() if compiles else nullcontext()
    with cpu.pinned(threads if where == "cpu" else torch.get_num_threads()), replayable(), here:
        found = ceilings or limits.measure(where)
        results = Results([], environment(where, threads, found))
        neighbours = cpu.Neighbours()
        done: set[tuple[Any, ...]] = set()
        for chosen in dtypes:
            given = workloads(op, where, chosen, samples)
            if not given:
                _warn(results.warnings, f"{op.name}, {_dtype_name(chosen)}: no sample has elements")
            for workload in given:
                same = workload.name, workload.dtype, workload.elements
                if same in done:  # its samples ignore the dtype
                    continue
                done.add(same)
                for each in directions:
                    for row in _rows(workload, each, others, found, threads, neighbours, results.warnings):
                        results.rows.append(row)
                        if on_row is not None:
                            on_row(row)
    unsure = sum(any(note.startswith(UNSURE) for note in row["notes"]) for row in results.rows)
    if unsure:
        uncertain = f"{unsure} of {len(results.rows)} times are uncertain by {NOISY:.0%} or more: the machine is noisy"
        _warn(results.warnings, f"{op.name}: {uncertain}")
    if where == "cpu" and neighbours.share > CROWDED:
        share = f"{neighbours.share:.0%}"
        _warn(
            results.warnings,
            f"{op.name}: a noisy machine: other processes used {share} of its CPUs; times are too long, most of all "
            "those of parallel code",
        )
    return results


def _kind(device: str | torch.device | None) -> str:
    """'cpu' or 'cuda'. Raises ValueError for what is not measured here."""
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    given = torch.device(device)
    if given.type not in ("cpu", "cuda"):
        raise ValueError(f"device={str(device)!r} is neither 'cpu' nor 'cuda'")
    if given.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda': torch sees no GPU here")
    if given.type == "cuda" and given.index not in (None, torch.cuda.current_device()):
        raise ValueError(f"device={str(device)!r} is not the current GPU: with torch.cuda.device({given.index}) it is")
    return given.type


def workloads(op: Op, device: str, dtype: torch.dtype, samples: Sequence[Sample] | None = None) -> list[Workload]:
    """The op on each of the samples, or on its own: those that are not empty, each under a name of its own."""
    given = op.samples_for(device, dtype) if samples is None else samples
    found: dict[str, Workload] = {}
    for place, sample in enumerate(given):
        name = sample.name or f"sample {place}"
        if name in found:
            name = next(other for k in itertools.count(2) if (other := f"{name} ({k})") not in found)
        found[name] = Workload(op, op.signature.bind(sample.args, dict(sample.kwargs)), name)
    return [each for each in found.values() if each.tensors and all(tensor.numel() for tensor in each.tensors)]


def _rows(
    workload: Workload,
    direction: str,
    against: Sequence[str],
    found: Ceilings,
    threads: int,
    neighbours: cpu.Neighbours,
    warnings: list[str],
) -> list[Row]:
    if direction != "forward" and not workload.has_gradient:
        why = "complex gradients are not timed" if workload.is_complex else "no input has a gradient"
        _warn(warnings, f"{workload.op.name} {workload.name}: no {direction}: {why}")
        return []
    verifier = None if is_random(workload) else Verifier(workload, direction)
    if verifier is None:
        _warn(warnings, f"{workload.op.name} draws random numbers: its results are not verified")
    try:
        contenders, samplers = _contenders(workload, direction, against, verifier, warnings)
    except RandomReferenceError as reason:
        _warn(warnings, f"no {direction}: {reason}")
        return []
    with neighbours.watched():
        timings = _timed(samplers, 60 if workload.device.type == "cuda" else 30, warnings)
    own = timings[OPSMITH]
    rows = []
    for name, timing in timings.items():
        row = _row(workload, direction, name, timing, own, found, threads)
        with _left_out_where_it_fails(name, warnings) as fine:
            if verifier is not None and name not in BASELINES:  # torch's own keep nothing from call to call
                verifier.verify_again(name, contenders[name])
            row |= _host(workload, contenders[name], direction)
            row |= _memory(workload, contenders[name], direction)
        if not fine:
            continue
        notes = _notes(row, timing, own, found)
        rows.append({**row, "verified": verifier is not None, "notes": notes})
        for note in notes:
            if not note.startswith(UNSURE):  # reported once for all rows
                _warn(warnings, f"{workload.op.name} {workload.name} {direction} {name}: {note}")
    return rows


def _timed(samplers: dict[str, Sampler], most: int, warnings: list[str]) -> dict[str, Timing]:
    """Without those that fail on the way."""
    while True:
        try:
            return measured(samplers, most=most)
        except SamplingError as failed:
            _leave_out(failed.name, failed.error, warnings)
            del samplers[failed.name]


@contextmanager
def _left_out_where_it_fails(name: str, warnings: list[str]) -> Iterator[list[bool]]:
    """Yields a list that is empty afterwards where a contender raised inside."""
    fine = [True]
    try:
        yield fine
    except Exception as error:  # from a kernel, a compiler, or out of memory
        _leave_out(name, error, warnings)
        fine.clear()


def _leave_out(name: str, error: Exception, warnings: list[str]) -> None:
    """An error of the op ends the benchmark; another contender is left out."""
    if name == OPSMITH:
        raise error
    explained = isinstance(error, (UnavailableError, WrongResultError))
    _warn(warnings, str(error if explained else UnavailableError(name, first_line(error))))


def _notes(row: Row, timing: Timing, own: Timing, found: Ceilings) -> list[str]:
    notes = []
    highest = found.fastest / found.copy if row.get("limit") == "memory" else 1.0
    if row.get("share", 0.0) > limits.TOLERANCE * highest:
        notes.append(_too_fast(row))
    if (spread := interval(timing.samples).half_width) > NOISY:
        notes.append(f"{UNSURE} {spread:.0%}: the machine is noisy")
    if timing is not own and indistinguishable(timing, own):
        notes.append("too noisy to distinguish from opsmith")
    return notes


def _contenders(
    workload: Workload, direction: str, against: Sequence[str], verifier: Verifier | None, warnings: list[str]
) -> tuple[dict[str, Function], dict[str, Sampler]]:
    """The contenders that run here, verified, each with its sampler."""
    contenders: dict[str, Function] = {}
    samplers: dict[str, Sampler] = {}
    stage = Stage(workload, direction)
    for name in dict.fromkeys((OPSMITH, *against)):
        with _left_out_where_it_fails(name, warnings):
            function = contender(workload.op, name, workload.device.type)
            if verifier is not None:
                verifier.verify(name, function)
            contenders[name] = function
    for name, function in list(contenders.items()):  # only now: making a contender may drop what another has compiled
        with _left_out_where_it_fails(name, warnings):
            samplers[name] = stage.sampler(function)
    return contenders, samplers


def _too_fast(row: Row) -> str:
    """On a GPU the cache is overwritten before each sample; on a CPU small arguments, however many, stay in it."""
    if row["device"] == "cpu" and row["limit"] == "memory" and MOST_COPIES * row["bytes"] < cpu.CACHE_BYTES:
        return "above the memory bandwidth: its arguments stay in the CPU cache"
    return "above the machine's limit: the benchmark or the declared cost is wrong"


def _warn(warnings: list[str], text: str) -> None:
    if text not in warnings:
        warnings.append(text)


def _row(
    workload: Workload, direction: str, name: str, timing: Timing, own: Timing, found: Ceilings, threads: int
) -> Row:
    spread = interval(timing.samples)
    on_gpu = workload.device.type == "cuda"
    row: Row = {
        "op": workload.op.name,
        "sample": workload.name,
        "dtype": _dtype_name(workload.dtype),
        "elements": workload.elements,
        "direction": direction,
        "contender": name,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "threads": None if on_gpu else threads,
        "us": _us(spread.median),
        "low_us": _us(spread.low),
        "high_us": _us(spread.high),
        "rounds": len(timing.samples),
    }
    if name != OPSMITH:
        versus = timing.versus(own)
        row |= {"speedup": round(versus.ratio, 4), "speedup_low": round(versus.low, 4),
                "speedup_high": round(versus.high, 4)}  # fmt: skip
    cost = workload.cost(direction)
    if cost is not None and (cost.bytes or cost.flops):
        row |= {"bytes": cost.bytes, "flops": cost.flops}
        row |= found.share(row)
    return row


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 4)


def _host(workload: Workload, function: Function, direction: str) -> Row:
    """On a GPU the time of a call on the host, where the GPU keeps up."""
    if workload.device.type != "cuda" or workload.input_bytes > SMALL:
        return {}
    call = call_for(function, workload.values, workload.op.signature, direction)
    taken = time_together({"host": call}, rounds=9, round_seconds=0.005, synchronize=torch.cuda.synchronize)
    return {"host_us": _us(taken["host"].median)}


def _memory(workload: Workload, function: Function, direction: str) -> Row:
    if workload.device.type != "cuda":
        return {}
    call = call_for(function, workload.values, workload.op.signature, direction)
    floating = sum(t.numel() * t.element_size() for t in workload.tensors if t.is_floating_point())
    held = {"forward": workload.result_bytes, "backward": floating, "both": workload.result_bytes + floating}
    return {"peak_bytes": gpu.peak_bytes(call), "held_bytes": held[direction]}
