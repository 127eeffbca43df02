"""opsmith's own wheel where no compiler is: every shipped op runs its prebuilt kernels in the first process.

    make wheel
    time make wheel
    python benchmarks/wheel.py dist/opsmith-*.whl [--device cuda] [--compare] [--build-seconds N] [--json FILE]

The wheel is unpacked, and a new process uses it with an empty cache; there, starting a program and loading NVRTC raise.
It calls each op on its samples, forward and backward, and keeps the results. A second process has compilers and no
prebuilt files: its results are compared with the first one's (--compare; on a CPU that takes minutes). A third one
repeats the calls that differ, with prebuilt kernels: each must be within the op's budget of its reference.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

FIRST_CALL_MS = 50.0
BUILD_SECONDS = 20 * 60.0
"""On two cores."""
CALL_BARS = {"cuda": 1.2, "cpu": 1.65}
"""Times aten's own call; on a CPU as in overhead.py."""
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


# --- in the processes that use the wheel ------------------------------------------------------------------------------


def refuse_compilers() -> None:
    """Whatever would compile raises from now on."""

    def refuse(*arguments: Any, **keywords: Any) -> Any:
        raise AssertionError(f"a program was started: {arguments}")

    subprocess.Popen.__init__ = refuse  # type: ignore[method-assign]
    load = ctypes.CDLL.__init__

    def loaded(self: Any, name: Any = None, *arguments: Any, **keywords: Any) -> None:
        assert "nvrtc" not in str(name), "NVRTC was loaded"
        load(self, name, *arguments, **keywords)

    ctypes.CDLL.__init__ = loaded  # type: ignore[method-assign]
    sys.modules["cuda.bindings.nvrtc"] = None  # type: ignore[assignment]


def calls(op: Any, device: str) -> Iterator[tuple[str, list[Any]]]:
    """(name, arguments) of each sample in each dtype, the same in both processes."""
    for dtype in DTYPES:
        torch.manual_seed(0)
        for number, sample in enumerate(op.samples_for(device, dtype)):
            values = op.signature.bind_call(sample.args, dict(sample.kwargs))
            yield f"{str(dtype)[6:]} {sample.name or number}", list(values)


def results(op: Any, values: list[Any]) -> list[torch.Tensor]:
    """Of a call, and the gradients of the tensors that need one in the sample; of all, if none does."""
    from opsmith.reference.tensors import copied_as_laid_out

    tensors = op.signature.flatten(values)
    some = any(t is not None and t.requires_grad for t in tensors)

    def leaf(t: torch.Tensor) -> torch.Tensor:
        needed = t.requires_grad if some else t.is_floating_point() and not op.signature.mutated
        return copied_as_laid_out(t.detach()).requires_grad_(needed)

    leaves = [None if t is None else leaf(t) for t in tensors]
    returned = op(*op.signature.unflatten(values, leaves))
    found = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    wanted = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    targets = [each for each in found if each.requires_grad]
    if targets and wanted:
        grads = [torch.ones_like(each) for each in targets]
        found += [g for g in torch.autograd.grad(targets, wanted, grads, allow_unused=True) if g is not None]
    return [each.detach().cpu() for each in found]


def use(device: str, into: Path, compilers: bool) -> None:
    """In a process of its own: every op on its samples, times of first calls, the cost of a call."""
    if not compilers:
        refuse_compilers()
        warnings.simplefilter("error")
    import opsmith
    from opsmith import ops, runtime

    if device == "cuda":
        torch.ones(1, device=device).sum().item()  # the context exists from here on
    facts: dict[str, Any] = {"tier": runtime.tier(), "opsmith": opsmith.__version__, "first": {}, "failed": {}}
    kept: dict[str, list[torch.Tensor]] = {}
    for name in ops.names():
        op = getattr(ops, name)
        for label, values in calls(op, device) if not name.startswith("_") else ():
            try:
                if name not in facts["first"]:
                    facts["first"][name] = first_call_ms(op, values, device)
                kept[f"{name} {label}"] = results(op, values)
            except Exception as error:  # reported, and the others go on
                facts["failed"][f"{name} {label}"] = f"{type(error).__name__}: {error}".splitlines()[0]
    facts["call_us"], facts["aten_us"], facts["times_aten"] = call_us(ops.square, torch.square, device)
    torch.save(kept, into / "results.pt")
    (into / "facts.json").write_text(json.dumps(facts))


def judge(device: str, into: Path) -> None:
    """In a process of its own: which of the calls named in a file are not within their op's budget, and why."""
    refuse_compilers()
    from opsmith import OpsmithWarning, ops
    from opsmith.checks import assert_matches

    warnings.simplefilter("error", OpsmithWarning)  # the reference instead of a prebuilt kernel
    names = set(json.loads((into / "names.json").read_text()))
    wrong: dict[str, str] = {}
    for op in (getattr(ops, name) for name in ops.__all__):
        for label, values in calls(op, device):
            name = f"{op.__name__} {label}"
            if name not in names:
                continue
            names.remove(name)
            try:
                assert_matches(op, *values)
            except Exception as error:  # reported, and the others go on
                wrong[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    assert not names, f"no such calls: {names}"
    (into / "facts.json").write_text(json.dumps(wrong))


def first_call_ms(op: Any, values: Sequence[Any], device: str) -> float:
    copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in values]
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    begin = time.perf_counter()
    op(*copies)
    synchronize()
    return (time.perf_counter() - begin) * 1e3


def call_us(function: Any, other: Any, device: str) -> tuple[float, float, float]:
    """The cost of a call of each on 64 elements, and the median of their ratios: in rounds that take turns."""
    torch.set_num_threads(1)
    x = torch.randn(64, device=device)

    def round_us(called: Any) -> float:
        begin = time.perf_counter()
        for _ in range(500):
            called(x)
        found = (time.perf_counter() - begin) / 500 * 1e6
        if device == "cuda":
            torch.cuda.synchronize()
        return found

    rounds = [(round_us(function), round_us(other)) for _ in range(60)]
    first, second = (statistics.median(each) for each in zip(*rounds, strict=True))
    return first, second, statistics.median(mine / theirs for mine, theirs in rounds)


# --- in the process that compares -------------------------------------------------------------------------------------


def run_in(package: Path, device: str, compilers: bool) -> tuple[dict[str, Any], dict[str, list[torch.Tensor]]]:
    with tempfile.TemporaryDirectory(prefix="opsmith-wheel-") as scratch:
        facts = _started(package, device, "--use", Path(scratch), compilers)
        facts["built"] = len(list(Path(scratch, "cache").glob("artifacts/*")))
        return facts, torch.load(f"{scratch}/results.pt")


def beyond_budget(package: Path, device: str, names: Sequence[str]) -> dict[str, str]:
    """Of the calls that differ: those that are not their reference's within rounding error, and why."""
    with tempfile.TemporaryDirectory(prefix="opsmith-wheel-") as scratch:
        Path(scratch, "names.json").write_text(json.dumps(names))
        return _started(package, device, "--judge", Path(scratch), compilers=False) if names else {}


def _started(package: Path, device: str, what: str, scratch: Path, compilers: bool) -> dict[str, Any]:
    """The facts that a process writes, which uses a package and an empty cache."""
    environment = {**os.environ, "PYTHONPATH": str(package), "OPSMITH_CACHE_DIR": f"{scratch}/cache"}
    if not compilers:
        none = str(scratch)
        environment |= {"PATH": none, "CXX": f"{none}/none", "CUDA_HOME": none, "OPSMITH_RUNTIME": "auto"}
    command = [sys.executable, __file__, what, str(scratch), "--device", device]
    subprocess.run([*command, *(["--compilers"] if compilers else [])], env=environment, check=True)
    found: dict[str, Any] = json.loads((scratch / "facts.json").read_text())
    return found


def differences(own: dict[str, list[torch.Tensor]], others: dict[str, list[torch.Tensor]]) -> dict[str, float]:
    """The calls that differ in a bit, and the largest difference of each in steps of the dtype."""
    found = {}
    for name, mine in own.items():
        pairs = list(zip(mine, others[name], strict=True))
        if not all(torch.equal(_bits(first), _bits(second)) for first, second in pairs):
            found[name] = max(_steps(first, second) for first, second in pairs)
    return found


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).contiguous().view(torch.uint8)


def _steps(mine: torch.Tensor, other: torch.Tensor) -> float:
    """Of the dtype, at the largest number; infinite, where only one of them has a number."""
    step = torch.finfo(other.dtype).eps if other.is_floating_point() else 1.0
    smallest = torch.finfo(other.dtype).tiny if other.is_floating_point() else 1.0
    mine, other = mine.double(), other.double()
    numbers = mine.isfinite() & other.isfinite()
    if not torch.equal(mine[~numbers].nan_to_num(7.0), other[~numbers].nan_to_num(7.0)):
        return math.inf
    if not numbers.any():
        return 0.0
    scale = other[numbers].abs().max().clamp(min=smallest) if step < 1.0 else 1.0
    return float((mine - other)[numbers].abs().max() / (scale * step))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path, nargs="?")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--compare", action="store_true", help="with kernels compiled here")
    parser.add_argument("--build-seconds", type=float, help="how long the wheel took to build, for the row")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--use", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--compilers", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.use:
        use(options.device, options.use, options.compilers)
        return 0
    if options.judge:
        judge(options.device, options.judge)
        return 0
    wrong: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="opsmith-wheel-") as scratch:
        package, bare = Path(scratch, "package"), Path(scratch, "bare")
        with zipfile.ZipFile(options.wheel) as archive:
            archive.extractall(package)
        facts, own = run_in(package, options.device, compilers=False)
        row = {
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
            "wheel_mb": options.wheel.stat().st_size / 1e6,
            "tier": facts["tier"],
            "calls": len(own),
            "failed": len(facts["failed"]),
            "built": facts["built"],
            "slowest_first_call_ms": max(facts["first"].values()),
            "call_us": facts["call_us"],
            "aten_us": facts["aten_us"],
            "times_aten": facts["times_aten"],
        }
        if options.build_seconds is not None:
            row["build_seconds"] = options.build_seconds
        if options.compare:
            shutil.copytree(package, bare)
            for path in (bare / "opsmith" / "prebuilt" / "artifacts").iterdir():
                if not any("runtime" in each.name or "planner" in each.name for each in path.iterdir()):
                    for each in path.iterdir():
                        each.unlink()
            _, others = run_in(bare, options.device, compilers=True)
            differing = differences(own, others)
            wrong = beyond_budget(package, options.device, list(differing))
            row["same_bits"] = len(own) - len(differing)
            row["most_steps"] = max(differing.values(), default=0.0)
            row["beyond_budget"] = len(wrong)
    table = Table("what", "value", title="opsmith's wheel without compilers")
    for key, value in row.items():
        table.add_row(key, f"{value:.3g}" if isinstance(value, float) else str(value))
    Console().print(table)
    for name, error in facts["failed"].items():
        print(f"failed: {name}: {error}")
    for name, error in wrong.items():
        print(f"not within its budget: {name}: {error}")
    if options.json:
        about = {"torch": torch.__version__, "opsmith": facts["opsmith"], "wheel": options.wheel.name}
        found = {"benchmark": "wheel", "about": about, "rows": [{**row, "first_call_ms": facts["first"]}]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    met = row["times_aten"] <= CALL_BARS[options.device] and row["slowest_first_call_ms"] < FIRST_CALL_MS
    met = met and not wrong and (options.build_seconds or 0.0) < BUILD_SECONDS
    return 0 if met and not facts["failed"] and not facts["built"] and facts["tier"] == "native" else 1


if __name__ == "__main__":
    sys.exit(main())
