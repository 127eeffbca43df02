"""opsmith.bench: an op beside what its users have, verified first, then timed."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..checks.compare import compare_calls
from ..errors import OpsmithError
from ..op import Op
from ..samples import Sample
from ..schema import Argument
from . import ceilings as limits
from . import cpu, gpu
from .ceilings import Ceilings
from .contenders import OPSMITH, Function, UnavailableError, contender
from .results import Results, Row
from .sampling import Sampler, indistinguishable, interval, measured
from .timing import Timing, time_together
from .workload import DIRECTIONS, Workload, call_for

VERIFIED_WHOLE = 1 << 20
"""Elements up to which a result is held against the reference in float64. Above, against the reference in float32."""
SMALL = 64 << 10
"""Bytes of inputs for which a call's time on the host is told."""


class WrongResultError(OpsmithError):
    """A contender that does not compute what the reference does is not timed."""

    def __init__(self, op: str, name: str, workload: str, message: str) -> None:
        super().__init__(f"{op}, {workload}: {name} is not timed, for its results are not the reference's: {message}")


def bench(
    op: Op,
    *,
    device: str | None = None,
    dtype: torch.dtype | Sequence[torch.dtype] | None = None,
    samples: Sequence[Sample] | None = None,
    against: Sequence[str] = ("eager", "compile"),
    direction: str | Sequence[str] = ("forward", "backward"),
    threads: int = 2,
    ceilings: Ceilings | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> Results:
    """Times an op beside its baselines and says what share of the machine's limit each reaches.

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
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    directions = [direction] if isinstance(direction, str) else list(direction)
    for each in directions:
        if each not in DIRECTIONS:
            raise ValueError(f"direction={each!r} is not one of {', '.join(DIRECTIONS)}")
    default = (torch.float32, torch.bfloat16) if where == "cuda" else (torch.float32,)
    dtypes = [dtype] if isinstance(dtype, torch.dtype) else list(dtype or default)
    with cpu.pinned(threads if where == "cpu" else torch.get_num_threads()):
        found = ceilings or limits.measure(where)
        results = Results([], environment(where, threads, found))
        for chosen in dtypes:
            for workload in workloads(op, where, chosen, samples):
                for each in directions:
                    for row in _rows(workload, each, against, found, threads, results.warnings):
                        results.rows.append(row)
                        if on_row is not None:
                            on_row(row)
    return results


def workloads(op: Op, device: str, dtype: torch.dtype, samples: Sequence[Sample] | None = None) -> list[Workload]:
    """The op on each of the samples, or on its own: those that are not empty."""
    given = op.samples_for(device, dtype) if samples is None else samples
    found = [
        Workload(op, op.signature.bind(s.args, dict(s.kwargs)), s.name or f"sample {i}") for i, s in enumerate(given)
    ]
    return [workload for workload in found if all(tensor.numel() for tensor in workload.tensors)]


def _rows(
    workload: Workload, direction: str, against: Sequence[str], found: Ceilings, threads: int, warnings: list[str]
) -> list[Row]:
    contenders: dict[str, Function] = {}
    for name in dict.fromkeys((OPSMITH, *against)):
        try:
            function = contender(workload.op, name)
            verify(workload, name, function, direction)
        except UnavailableError as reason:
            _warn(warnings, str(reason))
            continue
        except WrongResultError as wrong:
            if name == OPSMITH:
                raise
            _warn(warnings, str(wrong))
            continue
        contenders[name] = function
    timings = _timed(workload, contenders, direction)
    own = timings[OPSMITH]
    rows = []
    for name, timing in timings.items():
        row = _row(workload, direction, name, timing, own, found, threads)
        row |= _host(workload, contenders[name], direction)
        row |= _memory(workload, contenders[name], direction)
        notes: list[str] = []
        if row.get("share", 0.0) > limits.TOLERANCE * found.fastest / found.copy:
            notes.append("above the machine's ceiling: a fault of the benchmark, or of the declared cost")
        if name != OPSMITH and indistinguishable(timing, own):
            notes.append("too noisy to tell it from opsmith")
        rows.append({**row, "verified": True, "notes": notes})
        for note in notes:
            _warn(warnings, f"{workload.op.name} {workload.name} {direction} {name}: {note}")
    return rows


def _warn(warnings: list[str], text: str) -> None:
    if text not in warnings:
        warnings.append(text)


def _timed(workload: Workload, contenders: dict[str, Function], direction: str) -> dict[str, Timing]:
    on_gpu = workload.device.type == "cuda"
    sets = workload.copies(gpu.l2_bytes() if on_gpu else cpu.CACHE_BYTES)
    samplers: dict[str, Sampler] = {}
    for name, function in contenders.items():

        def made(number: int, function: Function = function) -> Callable[[], Any]:
            return call_for(function, sets[number], workload.op.signature, direction)

        if on_gpu:
            samplers[name] = gpu.sampler(made, len(sets))
        else:
            samplers[name] = cpu.CallSampler([made(number) for number in range(len(sets))])
    return measured(samplers, most=60 if on_gpu else 30)


def _row(
    workload: Workload, direction: str, name: str, timing: Timing, own: Timing, found: Ceilings, threads: int
) -> Row:
    spread = interval(timing.samples)
    dtype = str(workload.dtype).removeprefix("torch.")
    on_gpu = workload.device.type == "cuda"
    row: Row = {
        "op": workload.op.name,
        "sample": workload.name,
        "dtype": dtype,
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
    if cost is not None:
        least, limit = found.seconds(cost, dtype)
        row |= {"bytes": cost.bytes, "flops": cost.flops, "share": round(least / spread.median, 4), "limit": limit}
    return row


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


def verify(workload: Workload, name: str, function: Function, direction: str) -> None:
    """Raises WrongResultError unless a contender computes what the reference does."""
    arguments: Sequence[Argument] = workload.op.signature.arguments
    gradients = direction != "forward"
    if workload.elements <= VERIFIED_WHOLE:
        compared = compare_calls(
            arguments, function, workload.op.inline_like_call, workload.values, gradients,
        )  # fmt: skip
        wrong = [f"{each.what}: {each.message}" for each in compared if not each]
        if wrong and not (name != OPSMITH and workload.dtype in (torch.float16, torch.bfloat16)):
            raise WrongResultError(workload.op.name, name, workload.name, wrong[0])
        return
    _verify_large(workload, name, function, gradients)


def _verify_large(workload: Workload, name: str, function: Function, gradients: bool) -> None:
    """Beside the reference in float32 (float64 for float64): within sixteen units of the largest one's last place."""
    from ..checks.evaluate import evaluate

    arguments = workload.op.signature.arguments
    wide = torch.float32 if workload.dtype in (torch.float16, torch.bfloat16) else None
    mine = evaluate(arguments, function, workload.values, gradients=gradients)
    theirs = evaluate(arguments, workload.op.inline_like_call, workload.values, dtype=wide, gradients=gradients)
    for (what, given), (_, right) in zip(mine, theirs, strict=True):
        if given is None or right is None or not given.is_floating_point():
            continue
        allowed = 16 * torch.finfo(given.dtype).eps * float(right.abs().max())
        # A sum over many terms, rounded in another order: as many roundings as the square root of their number.
        terms = max(1, workload.elements // max(1, given.numel()))
        off = float((given.to(right.dtype) - right).abs().max())
        if not off <= allowed * terms**0.5:
            raise WrongResultError(workload.op.name, name, workload.name, f"{what} is off by {off:.3g}")


def environment(device: str, threads: int, found: Ceilings) -> dict[str, Any]:
    """What the rows were measured on."""
    about: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
        "kind": device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "threads": threads if device == "cpu" else None,
        "ceilings": found.as_dict(),
    }
    from .. import __version__

    return {**about, "opsmith": __version__}
