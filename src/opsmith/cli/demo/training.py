"""Train a classifier of synthetic digits with opsmith's modules, before your eyes."""

from __future__ import annotations

from rich.progress import BarColumn, Progress, TextColumn

from .._screen import output


def train(device: str, steps: int) -> float:
    """The accuracy reached on digits that the model has not seen."""
    import torch

    from ... import nn
    from . import digits

    torch.manual_seed(0)
    model = torch.nn.Sequential(nn.FusedLinear(784, 256), nn.Polynomial(), torch.nn.Linear(256, 10)).to(device)
    output.print("A classifier of ten digits, 784-256-10:")
    for layer in model:
        output.print(f"  {layer!r}", style="dim")
    accuracy = 0.0
    columns = (
        TextColumn("Training"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:>3}/{task.total}"),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TextColumn("[green]accuracy {task.fields[accuracy]:.1%}"),
    )
    with Progress(*columns, console=output) as progress:
        task = progress.add_task("", total=steps, loss=0.0, accuracy=0.0)
        for step, loss, accuracy in digits.train(model, device, steps):
            progress.update(task, completed=step, loss=loss, accuracy=accuracy)
    return accuracy
