"""Operators registered without opsmith, and plain PyTorch that says what they compute."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import opsmith

library = torch.library.Library("check_tests_adopted", "FRAGMENT")
library.define("double(Tensor x) -> Tensor")
library.define("triple(Tensor x) -> Tensor")
library.define("triple.scaled(Tensor x, float scale) -> Tensor")
library.define("several.first(Tensor x) -> Tensor")
library.define("several.second(Tensor x, Tensor y) -> Tensor")
library.impl("double", lambda x: x + x, "CompositeExplicitAutograd")
library.impl("triple", lambda x: x * 2, "CompositeExplicitAutograd")
library.impl("triple.scaled", lambda x, scale: x * 3 * scale, "CompositeExplicitAutograd")


def double(x: Tensor) -> Tensor:
    return x * 2


def triple(x: Tensor, scale: float = 1.0) -> Tensor:
    return x * 3 * scale


def one_row(device: torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    yield opsmith.Sample(args=(torch.randn(1, 9, device=device, dtype=dtype),), name="one row")


NOT_A_FUNCTION = 3
