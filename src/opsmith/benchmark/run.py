"""opsmith.bench: an op and its baselines, verified first, then timed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from ..checks.accuracy.rounding import counting_reference
from ..checks.items.compile import compiling_here
from ..checks.outcome import first_line
from ..errors import RandomReferenceError, UnavailableError, WrongResultError
from ..operator import child_process
from ..operator.op import Op
from ..operator.samples import Sample
from . import ceilings as limits
from . import cpu, gpu
from .ceilings import Ceilings
from .contenders import BASELINES, OPSMITH, Function, contender, replayable
from .results import Results, Row, environment
from .timing import Sampler, SamplingError, Timing, indistinguishable, interval, measured, time_together
from .verifying import Verifier, is_random
from .workload import DIRECTIONS, MOST_COPIES, Stage, Workload, call_for

SMALL = 64 << 10  # bytes of inputs up to which the host time of a call is reported
UNSURE = "uncertain by"
REFERENCE_RAN = "the time is that of the reference"
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

    Results are verified before anything is timed. On a GPU the time is that of the kernels, measured with replayed CUDA
    graphs over rotating arguments that exceed the cache. Host time, memory and the ceilings are measured separately, in
    the same run.

    Args:
        op: the op to measure, together with each of `against`.
        device: "cpu" or "cuda"; None: the GPU if there is one.
        dtype: one or several; None: float32, and bfloat16 on a GPU.
        samples: what to run on, instead of the op's own samples.
        against: "eager", "compile", "compile-max", "liger", or names of the op's kernels.
        direction: "forward", "backward", "both" (one after the other, as in training), or several.
        threads: number of threads on a CPU.
        ceilings: the machine's, if they have been measured already.
        on_row: called with each row as soon as it is measured.
    """
    if child_process.returns_at_once():
        return Results(warnings=[f"{op.name}: {child_process.REASON}"])
    where, wanted = _kind(device), directions(direction)
    if threads < 1:
        raise ValueError(f"threads={threads}: at least one is needed")
    dtypes = [dtype] if isinstance(dtype, torch.dtype) else list(dict.fromkeys(dtype or default_dtypes(where)))
    if samples is not None:
        dtypes = dtypes[:1]  # samples have their own dtype
    others = listed(against)
    compiles = where == "cpu" and any(name.startswith("compile") for name in others)
    here = compiling_here() if compiles else nullcontext()
    with cpu.pinned(threads if where == "cpu" else None), replayable(), here:
        found = ceilings or limits.measure(where)
        run = _Run(others, threads, found, Results([], environment(where, threads, found)))
        done: set[tuple[Any, ...]] = set()
        for chosen in dtypes:
            given = workloads(op, where, chosen, samples)
            if not given:
                run.warn(f"{op.name}, {_dtype_name(chosen)}: no sample has elements")
            for workload in given:
                same = workload.name, workload.dtype, workload.elements
                if same in done:  # its samples ignore the dtype
                    continue
                done.add(same)
                for each in wanted:
                    for row in run.rows(workload, each):
                        run.results.rows.append(row)
                        if on_row is not None:
                            on_row(row)
    run.warn_of_noise(op, where)
    return run.results


def listed(names: str | Sequence[str]) -> list[str]:
    """'eager, compile' -> ['eager', 'compile']."""
    given = names.split(",") if isinstance(names, str) else names
    return list(dict.fromkeys(name.strip() for name in given if name.strip()))


def directions(names: str | Sequence[str]) -> list[str]:
    """Raises ValueError."""
    given = listed(names)
    if not given:
        raise ValueError(f"give one or more directions of {', '.join(DIRECTIONS)}")
    for each in given:
        if each not in DIRECTIONS:
            raise ValueError(f"direction {each!r} is not one of {', '.join(DIRECTIONS)}")
    return given


def default_dtypes(device: str) -> tuple[torch.dtype, ...]:
    return (torch.float32, torch.bfloat16) if device == "cuda" else (torch.float32,)


def _kind(device: str | torch.device | None) -> str:
    """'cpu' or 'cuda'. Raises ValueError if the device cannot be measured here."""
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if str(device).partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device={str(device)!r} is neither 'cpu' nor 'cuda'")
    given = torch.device(device)
    if given.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda': torch sees no GPU here")
    if given.type == "cuda" and given.index not in (None, torch.cuda.current_device()):
        raise ValueError(f"device={str(device)!r} is not the current GPU: use with torch.cuda.device({given.index})")
    return given.type


def workloads(op: Op, device: str, dtype: torch.dtype, samples: Sequence[Sample] | None = None) -> list[Workload]:
    """The op on each of the samples, or on its own samples; without empty ones, each with a unique name."""
    given = op.samples_for(device, dtype) if samples is None else samples
    found: dict[str, Workload] = {}
    for place, sample in enumerate(given):
        name = sample.name or f"sample {place}"
        if name in found:
            name = next(other for k in itertools.count(2) if (other := f"{name} ({k})") not in found)
        found[name] = Workload(op, op.signature.bind(sample.args, dict(sample.kwargs)), name)
    return [each for each in found.values() if each.tensors and all(tensor.numel() for tensor in each.tensors)]


@dataclass
class _Run:
    """What all rows of a benchmark share."""

    against: Sequence[str]
    threads: int
    ceilings: Ceilings
    results: Results
    load: cpu.OtherLoad = field(default_factory=cpu.OtherLoad)

    def warn(self, text: str) -> None:
        if text not in self.results.warnings:
            self.results.warnings.append(text)

    def warn_of_noise(self, op: Op, device: str) -> None:
        rows = self.results.rows
        unsure = sum(any(note.startswith(UNSURE) for note in row["notes"]) for row in rows)
        if unsure:
            uncertain = f"{unsure} of {len(rows)} times are uncertain by {NOISY:.0%} or more"
            self.warn(f"{op.name}: {uncertain}: the machine is noisy")
        if device == "cpu" and self.load.share > CROWDED:
            self.warn(
                f"{op.name}: a noisy machine: other processes used {self.load.share:.0%} of its CPUs; times are too "
                "long, most of all those of parallel code"
            )

    def rows(self, workload: Workload, direction: str) -> list[Row]:
        """A row for each contender that runs here; none if the direction cannot be timed."""
        if direction != "forward" and not workload.has_gradient:
            why = "complex gradients are not timed" if workload.is_complex else "no input has a gradient"
            self.warn(f"{workload.op.name} {workload.name}: no {direction}: {why}")
            return []
        verifier = None if is_random(workload) else Verifier(workload, direction)
        if verifier is None:
            self.warn(f"{workload.op.name} draws random numbers: its results are not verified")
        try:
            contenders, samplers = self._contenders(workload, direction, verifier)
        except RandomReferenceError as reason:
            self.warn(f"no {direction}: {reason}")
            return []
        if _reference_runs(workload, direction, contenders[OPSMITH]):
            self.warn(f"{workload.op.name} {workload.name} {direction}: no kernel serves this call: {REFERENCE_RAN}")
        with self.load.watched():
            timings = self._timed(samplers, 60 if workload.device.type == "cuda" else 30)
        rows = []
        for name, timing in timings.items():
            row = self._row(workload, direction, timing, timings[OPSMITH])
            with self._left_out_if_it_fails(name):
                if verifier is not None and name not in BASELINES:  # torch's own cache no results
                    verifier.verify_again(name, contenders[name])
                row |= _host(workload, contenders[name], direction)
                row |= _memory(workload, contenders[name], direction)
                notes = self._notes(row, timing, timings[OPSMITH])
                rows.append({**row, "verified": verifier is not None, "notes": notes})
                for note in notes:
                    if not note.startswith(UNSURE):  # reported once for all rows
                        self.warn(f"{workload.op.name} {workload.name} {direction} {name}: {note}")
        return rows

    def _contenders(
        self, workload: Workload, direction: str, verifier: Verifier | None
    ) -> tuple[dict[str, Function], dict[str, Sampler]]:
        """The contenders that run here, verified, each with its sampler."""
        contenders: dict[str, Function] = {}
        samplers: dict[str, Sampler] = {}
        stage = Stage(workload, direction)
        for name in dict.fromkeys((OPSMITH, *self.against)):
            with self._left_out_if_it_fails(name):
                function = contender(workload.op, name, workload.device.type)
                if verifier is not None:
                    verifier.verify(name, function)
                contenders[name] = function
        for name, function in contenders.items():  # after all are made: making one may drop another's compiled code
            with self._left_out_if_it_fails(name):
                samplers[name] = stage.sampler(function)
        return contenders, samplers

    def _timed(self, samplers: dict[str, Sampler], most: int) -> dict[str, Timing]:
        """The timings, without those of samplers that fail."""
        while True:
            try:
                return measured(samplers, most=most)
            except SamplingError as failed:
                self._leave_out(failed.name, failed.error)
                del samplers[failed.name]

    @contextmanager
    def _left_out_if_it_fails(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # from a kernel, a compiler, or out of memory
            self._leave_out(name, error)

    def _leave_out(self, name: str, error: Exception) -> None:
        """An error of the op ends the benchmark; another contender is left out."""
        if name == OPSMITH:
            raise error
        explained = isinstance(error, (UnavailableError, WrongResultError))
        self.warn(str(error if explained else UnavailableError(name, first_line(error))))

    def _row(self, workload: Workload, direction: str, timing: Timing, own: Timing) -> Row:
        spread = interval(timing.samples)
        on_gpu = workload.device.type == "cuda"
        row: Row = {
            "op": workload.op.name,
            "sample": workload.name,
            "dtype": _dtype_name(workload.dtype),
            "elements": workload.elements,
            "direction": direction,
            "contender": timing.name,
            "device": torch.cuda.get_device_name() if on_gpu else "cpu",
            "threads": None if on_gpu else self.threads,
            "us": _us(spread.median),
            "low_us": _us(spread.low),
            "high_us": _us(spread.high),
            "rounds": len(timing.samples),
        }
        if timing is not own:
            versus = timing.versus(own)
            row |= {"speedup": round(versus.ratio, 4), "speedup_low": round(versus.low, 4),
                    "speedup_high": round(versus.high, 4)}  # fmt: skip
        cost = workload.cost(direction)
        if cost is not None and (cost.bytes or cost.flops):
            row |= {"bytes": cost.bytes, "flops": cost.flops}
            row |= self.ceilings.share(row)
        return row

    def _notes(self, row: Row, timing: Timing, own: Timing) -> list[str]:
        notes = []
        highest = self.ceilings.fastest / self.ceilings.copy if row.get("limit") == "memory" else 1.0
        if row.get("share", 0.0) > limits.TOLERANCE * highest:
            notes.append(_too_fast(row))
        if (spread := interval(timing.samples).half_width) > NOISY:
            notes.append(f"{UNSURE} {spread:.0%}: the machine is noisy")
        if timing is not own and indistinguishable(timing, own):
            notes.append("too noisy to distinguish from opsmith")
        return notes


def _too_fast(row: Row) -> str:
    """On a GPU the cache is overwritten before each sample; on a CPU small arguments, however many, stay in it."""
    if row["device"] == "cpu" and row["limit"] == "memory" and MOST_COPIES * row["bytes"] < cpu.CACHE_BYTES:
        return "above the memory bandwidth: its arguments stay in the CPU cache"
    return "above the machine's limit: the benchmark or the declared cost is wrong"


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 4)


def _reference_runs(workload: Workload, direction: str, function: Function) -> bool:
    """Whether the reference runs where a kernel should. Only generated ops have one for every direction."""
    op = workload.op
    if not (op.is_generated or (direction == "forward" and op.kernels.get(workload.device.type))):
        return False
    call = call_for(function, workload.values, op.signature, direction)
    with counting_reference(op) as runs:
        for _ in range(2):  # the first results of a kernel are verified with the reference, which does not count
            runs.clear()
            call()
    return bool(runs)


def _host(workload: Workload, function: Function, direction: str) -> Row:
    """On a GPU, the time of a call on the host, for small arguments."""
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
