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

from .._screen import FAILED, RefusedError, output
from . import table, training

if TYPE_CHECKING:
    from ...operator.op import Op

STEPS = 200
WANTED = 0.95
COMPILE_SECONDS = 30.0
EXAMPLE = "scale_bias_relu"


def command(
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda, or auto.")] = "auto",
    steps: Annotated[int, typer.Option(help="How long to train.")] = STEPS,
    compile_seconds: Annotated[
        float, typer.Option(help="How long torch.compile may take for its side of the table; 0 leaves it out.")
    ] = COMPILE_SECONDS,
) -> None:
    """Builds, checks and times the shipped ops, then trains a classifier with them. Takes less than two minutes."""
    from ... import ops

    started, load = time.perf_counter(), os.getloadavg()[0]  # before the demo itself adds to it
    chosen = _device(device)
    shown = [getattr(ops, name) for name in ops.__all__]
    _introduce(getattr(ops, EXAMPLE))
    from . import building, measuring

    built = building.build(shown, chosen)
    rows = measuring.measure(shown, chosen, compile_seconds)
    output.print(table.of(rows, chosen))
    output.print(table.notes(rows, built, load))
    accuracy = training.train(chosen, steps)
    _close(time.perf_counter() - started)
    if not all(row.correct for row in rows) or (steps >= STEPS and accuracy < WANTED):
        raise typer.Exit(FAILED)


def _device(asked: str) -> str:
    import torch

    if asked not in ("auto", "cpu", "cuda"):
        raise RefusedError(f"--device takes cpu, cuda or auto, not {asked!r}.")
    if asked == "cuda" and not torch.cuda.is_available():
        raise RefusedError(
            "torch finds no CUDA device here. `opsmith doctor` tells why; --device cpu runs without one."
        )
    return ("cuda" if torch.cuda.is_available() else "cpu") if asked == "auto" else asked


def _introduce(op: Op) -> None:
    """What an author writes of an op, and what comes of it."""
    code = Syntax(_code(op), "python", theme="ansi_dark", background_color="default", word_wrap=True)
    output.print(Panel(code, title="You write", title_align="left", box=box.ROUNDED, border_style="dim"))
    output.print(
        "opsmith makes of it one fused kernel a direction, in C++ and in CUDA. The gradient of the bias is summed in "
        "the backward kernel. Second gradients, vmap, fake tensors and torch.compile come with it.\n"
    )


def _code(op: Op) -> str:
    """The reference without its docstring."""
    function = ast.parse(inspect.getsource(op.reference)).body[0]
    assert isinstance(function, ast.FunctionDef)
    said = function.body[0]
    lines = inspect.getsource(op.reference).splitlines()
    return "\n".join(lines[: said.lineno - 1] + lines[said.end_lineno :])


def _close(seconds: float) -> None:
    output.print(
        f"\nAll of it took {seconds:.0f} s. Next:\n"
        "  opsmith show polynomial               what an op consists of\n"
        "  opsmith show polynomial --source cpu  the kernel made for it; also --backward\n"
        "  examples/03_pointwise.py              an op of your own, line by line\n"
        "  docs/pointwise.md                     what can be written, what it becomes\n"
        "  opsmith doctor                        what this machine can build and run"
    )
