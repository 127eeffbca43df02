"""`opsmith demo`: the shipped ops built, checked and timed, and a model trained with the modules over them."""

from __future__ import annotations

import ast
import inspect
import os
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.panel import Panel
from rich.syntax import Syntax

from .._options import OnDevice, usable_device
from .._screen import FAILED, output
from . import table, training

if TYPE_CHECKING:
    from ...operator.op import Op

STEPS = 200
WANTED = 0.95
EXAMPLE = "scale_bias_relu"


def command(
    device: OnDevice = None,
    steps: Annotated[int, typer.Option(help="Training steps.")] = STEPS,
    compile_seconds: Annotated[
        float, typer.Option(help="Time limit of torch.compile's column; 0 leaves it out.")
    ] = 30.0,
) -> None:
    """Build, check and time the shipped ops, then train a classifier with them, in less than two minutes."""
    from ... import ops

    started, load = time.perf_counter(), os.getloadavg()[0]  # before the demo itself adds to it
    where = usable_device(device)
    shown = [getattr(ops, name) for name in ops.__all__]
    _introduce(getattr(ops, EXAMPLE))
    from . import measuring

    refusal = measuring.build(shown, where)
    rows = measuring.measure(shown, where, compile_seconds)
    output.print(table.of(rows, where))
    output.print(table.notes(rows, refusal, load))
    accuracy = training.train(where, steps)
    _close(time.perf_counter() - started)
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
