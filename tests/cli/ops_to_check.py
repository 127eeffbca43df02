"""Ops for the tests of `opsmith check`: sound, slow and wrong ones, and three that take their process along."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import opsmith


def declared(name: str, kernel: Callable[[Tensor], Tensor]) -> opsmith.Op:
    @opsmith.op(f"check_tests::{name}")
    def square(x: Tensor) -> Tensor:
        return x * x

    @square.register_samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
        yield opsmith.Sample(args=(torch.randn(5, 7, device=device, dtype=dtype),), name="5x7")

    square.register_kernel("cpu", kernel)
    return square


def right(x: Tensor) -> Tensor:
    print("the kernel says hello")
    return x * x


def nearly(x: Tensor) -> Tensor:
    return x * x + 1e-3


def crash(x: Tensor) -> Tensor:
    ctypes.string_at(0)
    return x * x


def hang(x: Tensor) -> Tensor:
    time.sleep(1000)
    return x * x


def doze(x: Tensor) -> Tensor:
    time.sleep(0.1)
    return x * x


def leave(x: Tensor) -> Tensor:
    os._exit(7)


crashes = declared("crashes", crash)
hangs = declared("hangs", hang)
leaves = declared("leaves", leave)
slow = declared("slow", doze)
sound = declared("sound", right)
wrong = declared("wrong", nearly)
