"""`opsmith demo`: the shipped ops built, checked and timed, and a model trained with the modules over them."""

from __future__ import annotations

import ast
import inspect
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from .._options import Json, OnDevice, usable_device
from .._screen import FAILED, STYLES, output, prepare_json, write_json
from . import training

if TYPE_CHECKING:
    from ...operator.op import Op
    from .measuring import Row

STEPS = 200
WANTED = 0.95
EXAMPLE = "scale_bias_relu"
WHO = {"opsmith": 7, "eager": 7, "compile": 8}  # the implementations, with the widths of their columns


def command(
    device: OnDevice = None,
    steps: Annotated[int, typer.Option(help="Training steps.")] = STEPS,
    compile_seconds: Annotated[
        float, typer.Option(help="Time limit of torch.compile's column; 0 leaves it out.")
    ] = 30.0,
    json: Json = None,
) -> None:
    """Build, check and time the shipped ops, then train a classifier with them, in less than two minutes."""
    from ... import ops

    prepare_json(json)
    started, load = time.perf_counter(), os.getloadavg()[0]  # before the demo itself adds to it
    where = usable_device(device)
    shown = [getattr(ops, name) for name in ops.__all__]
    _introduce(getattr(ops, EXAMPLE))
    from . import measuring

    refusal = measuring.build(shown, where)
    rows = measuring.measure(shown, where, compile_seconds)
    output.print(_table(rows, where))
    output.print(notes(rows, refusal, load))
    accuracy = training.train(where, steps)
    seconds = time.perf_counter() - started
    _close(seconds)
    facts = {"device": where, "steps": steps, "accuracy": accuracy, "seconds": seconds}
    write_json(json, {**facts, "ops": [row.facts for row in rows]})
    if not all(row.correct for row in rows) or (steps >= STEPS and accuracy < WANTED):
        raise typer.Exit(FAILED)


def _introduce(op: Op) -> None:
    """Prints what the author of an op writes, and what opsmith derives from it."""
    code = Syntax(_code(op), "python", theme="ansi_dark", background_color="default", word_wrap=True)
    output.print(Panel(code, title="You write", title_align="left", box=box.ROUNDED, border_style="dim"))
    output.print(
        "From this, opsmith generates one fused kernel per direction, in C++ and in CUDA. The backward kernel sums the "
        "gradient of the bias. Second gradients, vmap, fake tensors and torch.compile work too.\n"
    )


def _code(op: Op) -> str:
    """The reference without its docstring."""
    function = ast.parse(inspect.getsource(op.reference)).body[0]
    assert isinstance(function, ast.FunctionDef)
    docstring = function.body[0]
    lines = inspect.getsource(op.reference).splitlines()
    return "\n".join(lines[: docstring.lineno - 1] + lines[docstring.end_lineno :])


def _close(seconds: float) -> None:
    output.print(
        f"\nThe demo took {seconds:.0f} s. Next:\n"
        "  opsmith show polynomial               the parts of an op\n"
        "  opsmith show polynomial --source cpu  its generated kernel; also --backward\n"
        "  examples/03_pointwise.py              an op of your own, line by line\n"
        "  docs/pointwise.md                     what a pointwise op can compute\n"
        "  opsmith doctor                        what this machine can build and run"
    )


# --- The table --------------------------------------------------------------------------------------------------------


def _table(rows: Sequence[Row], device: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", title=_title(rows, device), title_justify="left"
    )
    table.add_column("op", no_wrap=True, vertical="bottom")
    table.add_column("error", justify="right", no_wrap=True, vertical="bottom")
    heading = "".join(f"{who:>{width}}" for who, width in WHO.items())
    for part in ("forward", "forward + backward"):
        table.add_column(f"{part:>{len(heading)}}\n{heading}", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.op.__name__, _error(row), _times(row.forward), _times(row.both))
    return table


def _title(rows: Sequence[Row], device: str) -> Text:
    import torch

    from .measuring import elements, timed_sample

    count = max(elements(timed_sample(row.op, device)) for row in rows)
    where = torch.cuda.get_device_name() if device == "cuda" else f"the CPU, {torch.get_num_threads()} threads"
    return Text(f"Milliseconds per call on {where}; up to {count:,} elements, float32")


def _error(row: Row) -> Text:
    share = f"{row.share_of_allowed:.0%}"
    return Text(f"{share:>5} ok", STYLES["ok"]) if row.correct else Text(f"{share:>5} wrong", STYLES["broken"])


def _times(times: Mapping[str, float]) -> Text:
    """The times in a line, the least of them in green."""
    least = min(times.values(), default=0.0)
    text = Text()
    for who, width in WHO.items():
        shown = _milliseconds(times[who]) if who in times else "-"
        style = STYLES["ok"] if times.get(who) == least else "dim" if who not in times else ""
        text.append(f"{shown:>{width}}", style)
    return text


def _milliseconds(seconds: float) -> str:
    """Three digits: 0.0312, 0.312, 3.12, 31.2, 312."""
    value = seconds * 1e3
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def notes(rows: Sequence[Row], refusal: str, load: float) -> Group:
    """What a reader of the table should know. `refusal`: why kernels were not built; `load`: of other programs."""
    from ... import runtime

    lines = ["error: the largest error of results and gradients; 100% is the allowed rounding error."]
    untimed = [row for row in rows if row.no_compile]
    if untimed:
        which = "no op" if len(untimed) == len(rows) else f"{len(rows) - len(untimed)} of {len(rows)} ops"
        reasons = dict.fromkeys(row.no_compile for row in untimed)
        lines.append(f"compile: torch.compile was timed on {which}: {'; '.join(reasons)}.")
    if runtime.tier() != "native":
        lines.append(f"opsmith: calls go through Python here, not C++ ({runtime.reason()}).")
    cores = os.cpu_count() or 1
    if load > cores / 2:
        lines.append(f"Other programs keep this machine busy (load {load:.1f}, {cores} cores): the times are rough.")
    if refusal:
        lines.append(refusal)
    return Group(*(Text(line, "dim") for line in lines), Text())
