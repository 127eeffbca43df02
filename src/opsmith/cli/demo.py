"""`opsmith demo`: a first operator, from its reference to a trained model."""

from __future__ import annotations

import inspect
import textwrap
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ._screen import FAILED, STYLES, output

if TYPE_CHECKING:
    from ..op import Op

STEPS = 200
WANTED = 0.95


def command(
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda, or auto.")] = "auto",
    steps: Annotated[int, typer.Option(help="How long to train.")] = STEPS,
) -> None:
    """Makes an operator of a PyTorch function, checks it, and trains a model with it. Takes less than a minute."""
    import torch

    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    started = time.perf_counter()
    op = _declared()
    _show(op)
    checked = _checked(op, chosen)
    accuracy = _trained(op, chosen, steps)
    _closing(accuracy, time.perf_counter() - started)
    if not checked or (steps >= STEPS and accuracy < WANTED):
        raise typer.Exit(FAILED)


def _declared() -> Op:
    import torch

    import opsmith

    def mish(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(torch.nn.functional.softplus(x))

    op = opsmith.op("demo::mish")(mish)

    @op.register_samples
    def _(device: str, dtype: torch.dtype):  # type: ignore[no-untyped-def]
        yield opsmith.Sample(args=(torch.randn(4096, device=device, dtype=dtype),), name="contiguous")
        yield opsmith.Sample(args=(torch.randn(64, 48, device=device, dtype=dtype).t(),), name="transposed")
        yield opsmith.Sample(args=(torch.randn(100, 9, device=device, dtype=dtype)[::3, 1::2],), name="sliced")

    return op


def _show(op: Op) -> None:
    """The reference, and what opsmith made of it."""
    from ..describe import parts

    source = '@opsmith.op("demo::mish")\n' + textwrap.dedent(inspect.getsource(op.reference))
    code = Syntax(source.rstrip(), "python", theme="ansi_dark", background_color="default")
    output.print(Panel(code, title="You write", title_align="left", box=box.ROUNDED, border_style="dim"))
    made = Table(box=None, show_header=False, pad_edge=False)
    for part in parts(op):
        if part.status == "derived":
            made.add_row(part.name, Text(part.detail, STYLES["derived"]))
    output.print(Panel(made, title="opsmith derives", title_align="left", box=box.ROUNDED, border_style="dim"))


def _checked(op: Op, device: str) -> bool:
    """The op against its reference on its samples, in three dtypes."""
    import torch

    from ..checks import compare_samples

    table = Table(box=box.SIMPLE_HEAD, title=f"Checked against its reference, on {device}", title_justify="left")
    table.add_column("dtype")
    for column in ("largest error", "allowed", "comparisons", ""):
        table.add_column(column, justify="right")
    good = True
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        found = compare_samples(op, device, dtype)
        worst = max(found, key=lambda each: each.error / max(each.allowed, 1e-300))
        good &= all(found)
        verdict = Text("ok", STYLES["ok"]) if all(found) else Text("wrong", STYLES["broken"])
        table.add_row(
            str(dtype).removeprefix("torch."), f"{worst.error:.1e}", f"{worst.allowed:.1e}", str(len(found)), verdict
        )
    output.print(table)
    return good


def _trained(op: Op, device: str, steps: int) -> float:
    """The op as the activation of a small classifier of synthetic digits, trained before your eyes."""
    from . import _digits

    accuracy = 0.0
    columns = (
        TextColumn("Training 784-256-10"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:>3}/{task.total}"),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TextColumn("[green]accuracy {task.fields[accuracy]:.1%}"),
    )
    with Progress(*columns, console=output) as progress:
        task = progress.add_task("", total=steps, loss=0.0, accuracy=0.0)
        for step, loss, accuracy in _digits.train(op, device, steps):
            progress.update(task, completed=step, loss=loss, accuracy=accuracy)
    return accuracy


def _closing(accuracy: float, seconds: float) -> None:
    output.print(
        f"\nAn operator from three lines of PyTorch trained a model to [green]{accuracy:.1%}[/] in {seconds:.0f} s.\n"
        "Next:\n"
        "  examples/01_op_from_a_reference.py  the same, line by line\n"
        "  examples/02_your_own_backward.py    your own backward, outputs, in place\n"
        "  opsmith doctor                      what this machine can build and run"
    )
