"""Ten synthetic digits, and the training of a classifier on them: no data set to download."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Seven segments on a field of 28x28, as (top, bottom, left, right), and the segments that each digit lights.
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


def train(model: torch.nn.Module, device: str, steps: int, seed: int = 0) -> Iterator[tuple[int, float, float]]:
    """Trains a classifier of images [count, 784] by Adam. Yields (step, loss, accuracy on digits it has not seen), the
    accuracy every 20 steps and at the end."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    held_out, answers = batch(2000, device, generator)
    accuracy = 0.1
    for step in range(1, steps + 1):
        images, labels = batch(256, device, generator)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == steps:
            with torch.no_grad():
                accuracy = float((model(held_out).argmax(-1) == answers).float().mean())
        yield step, float(loss.detach()), accuracy
