"""The record of every seeded fault: the op that has it, and the items that must find it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import opsmith

THEMES = ("reference", "gradient", "fake", "kernel", "layout", "registration", "cuda", "tutorial")

Function = Callable[..., Any]


@dataclass(frozen=True)
class Mutation:
    """`found_by`: any one of these items must fail. `where`: "cpu", or "emulated" for CUDA kernels run by the emulator.
    `level`: the level at which it is found."""

    name: str
    theme: str
    op: Any
    found_by: tuple[str, ...]
    story: str
    where: str = "cpu"
    level: str = "quick"


FOUND: dict[str, Mutation] = {}


def mutation(
    theme: str, *found_by: str, where: str = "cpu", level: str = "quick"
) -> Callable[[Callable[[str], Any]], Any]:
    """Records what a function returns: it is given a name for its op, makes the sound op and spoils it. Its docstring
    is the fault's story."""

    def record(make: Callable[[str], Any]) -> Any:
        op = make(f"mutated::{make.__name__}")
        story = " ".join((make.__doc__ or "").split())
        FOUND[make.__name__] = Mutation(make.__name__, theme, op, found_by, story, where, level)
        return op

    return record


def every() -> dict[str, Mutation]:
    """All of them, declared."""
    for theme in THEMES:
        importlib.import_module(f"{__package__}.{theme}")
    return FOUND


def samples(op: Any, make: Function, *sizes: tuple[int, ...]) -> None:
    """Gives an op a sample for each size: make(size, device, dtype) returns its arguments."""

    def yielded(device: Any, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
        for size in sizes:
            yield opsmith.Sample(args=tuple(make(size, device, dtype)), name="x".join(map(str, size)) or "scalar")

    op.register_samples(yielded)
