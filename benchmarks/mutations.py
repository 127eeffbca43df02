"""How many seeded faults `opsmith check` finds, and how many of them torch's own checks miss.

Each fault of tests/checks/mutations runs through the whole checklist, and through torch.library.opcheck and
torch.autograd.gradcheck on the op's first sample. Faults that are not found are listed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import platform
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from overhead import write
from rich.console import Console
from rich.progress import track

import opsmith

TESTS = Path(__file__).parents[1] / "tests"
BAR = 0.95
LET_THROUGH_BAR = 20
sys.path.insert(0, str(TESTS))


def found_by_torch(op: Any) -> str:
    """The error of torch.library.opcheck or torch.autograd.gradcheck; '' if both pass."""
    overload = op._families.default.forward.overload if isinstance(op, opsmith.Op) else op.overload
    sample = op.samples_for("cpu", torch.float64)[0]
    leaves = [
        value.detach().requires_grad_() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in sample.args
    ]
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            torch.library.opcheck(overload, sample.args, dict(sample.kwargs))
            if not op.signature.mutated:
                torch.library.opcheck(overload, tuple(leaves), dict(sample.kwargs))
                torch.autograd.gradcheck(lambda *args: op(*args, **sample.kwargs), leaves)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}" if str(error) else str(error)
    return ""


def measured(fault: Any, run: bool) -> dict[str, Any]:
    report = opsmith.check(fault.op, device="cpu", emulate=fault.where == "emulated", level=fault.level)
    row = {
        "fault": fault.name,
        "theme": fault.theme,
        "story": fault.story,
        "where": fault.where,
        "level": fault.level,
        "found": not report.ok,
        "items": [item.name for item in report.failures],
        "message": report.failures[0].message.splitlines()[0][:300] if report.failures else "",
        # CUDA kernels run only in the emulator here, which torch's checks do not support.
        "torch": found_by_torch(fault.op) if fault.where == "cpu" else None,
        "seconds": round(report.seconds, 1),
    }
    if run and report.failures:
        from checks import reproductions

        row["reproduced"] = reproductions.run(report.failures[0].reproduction).returncode == 1
    return row


def _show(fault: Any) -> None:
    console = Console()
    console.print(f"{fault.name}: {fault.story}")
    console.print(f"opcheck and gradcheck: {found_by_torch(fault.op) or 'pass'}", soft_wrap=True)
    report = opsmith.check(fault.op, device="cpu", emulate=fault.where == "emulated", level=fault.level)
    for item in report.failures:
        console.print(f"\n{item.name}: {item.message}", style="red", markup=False, soft_wrap=True)
        console.print(item.reproduction, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--reproduce", action="store_true", help="run the first reproduction of each failure")
    parser.add_argument("--only", nargs="*", metavar="FAULT", help="these; their failures are shown whole")
    given = parser.parse_args()
    from checks.mutations import library

    every = library.every()
    if given.only:
        for name in given.only:
            _show(every[name])
        return
    faults = list(every.values())
    rows = [measured(fault, given.reproduce) for fault in track(faults, "faults")]
    killed = [row for row in rows if row["found"]]
    let_through = [row for row in killed if row["torch"] == ""]
    console = Console()
    console.print(f"{len(killed)} of {len(rows)} found: {len(killed) / len(rows):.1%} (bar {BAR:.0%})")
    console.print(f"{len(let_through)} of them pass opcheck and gradcheck (bar {LET_THROUGH_BAR})")
    for row in rows:
        if not row["found"]:
            console.print(f"  survives: {row['fault']}: {row['story']}", style="red")
        elif row.get("reproduced") is False:
            console.print(f"  not reproduced: {row['fault']} {row['items'][:1]}", style="yellow")
    if given.json:
        write(given.json, "mutations", rows, {"machine": platform.machine()})
    sys.exit(0 if len(killed) >= BAR * len(rows) and len(let_through) >= LET_THROUGH_BAR else 1)


if __name__ == "__main__":
    main()
