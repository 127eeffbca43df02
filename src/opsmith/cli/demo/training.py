"""A classifier of ten synthetic digits, trained with opsmith's modules: no data set to download."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn

from .._screen import output

if TYPE_CHECKING:
    import torch

# Seven segments on a field of 28x28, as (top, bottom, left, right), and the segments of each digit.
SEGMENTS = {
    "a": (3, 6, 8, 20),
    "b": (4, 14, 18, 21),
    "c": (13, 24, 18, 21),
    "d": (22, 25, 8, 20),
    "e": (13, 24, 7, 10),
    "f": (4, 14, 7, 10),
    "g": (12, 15, 8, 20),
}
DIGITS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")
NOISE = 0.5


def train(device: str, steps: int) -> float:
    """Trains and shows the progress. Returns the accuracy on digits that the model has not seen."""
    import torch

    from ... import nn

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
        for step, loss, accuracy in _steps(model, device, steps):
            progress.update(task, completed=step, loss=loss, accuracy=accuracy)
    return accuracy


def _steps(model: torch.nn.Module, device: str, steps: int) -> Iterator[tuple[int, float, float]]:
    """Trains with Adam. Yields (step, loss, accuracy on unseen digits); the accuracy changes every 20 steps."""
    import torch

    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    unseen, answers = batch(2000, device, generator)
    accuracy = 0.1
    for step in range(1, steps + 1):
        images, labels = batch(256, device, generator)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == steps:
            with torch.no_grad():
                accuracy = float((model(unseen).argmax(-1) == answers).float().mean())
        yield step, float(loss.detach()), accuracy


def batch(count: int, device: str, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """`count` noisy digits, shifted by up to two pixels: images [count, 784] and labels [count]."""
    import torch

    shapes = torch.zeros(10, 28, 28)
    for digit, lit in enumerate(DIGITS):
        for segment in lit:
            top, bottom, left, right = SEGMENTS[segment]
            shapes[digit, top:bottom, left:right] = 1.0
    labels = torch.randint(0, 10, (count,), generator=generator)
    shifts = torch.randint(-2, 3, (count, 2), generator=generator)
    rows = (torch.arange(28)[None, :] - shifts[:, :1]) % 28
    columns = (torch.arange(28)[None, :] - shifts[:, 1:]) % 28
    images = shapes[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
    images = images + NOISE * torch.randn(images.shape, generator=generator)
    return images.reshape(count, 784).to(device), labels.to(device)
