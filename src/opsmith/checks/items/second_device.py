"""Tensors on a GPU other than the current one are computed there, and the current device does not change."""

from __future__ import annotations

import torch

from ..cases.case import Case
from ..outcome import Skipped
from ..subject import Subject
from . import _gpu

ON = ("cuda",)
ORDER = 63


def check(subject: Subject) -> str:
    if torch.cuda.device_count() < 2:
        raise Skipped("this machine has one GPU")
    _gpu.on_every_kernel(subject, check_call)
    current = torch.cuda.current_device()
    return f"on {_other(current)}, while cuda:{current} is current"


def check_call(subject: Subject, case: Case) -> None:
    current = torch.cuda.current_device()
    other = _other(current)
    gradients = subject.differentiates(case)
    expected = subject.evaluate(case, gradients)
    moved = case.each_tensor(lambda tensor: tensor.to(other), "{}")
    torch.cuda.synchronize(other)
    found = subject.evaluate(moved, gradients)
    if torch.cuda.current_device() != current:
        torch.cuda.set_device(current)
        raise case.failed(f"it leaves {other}, where its tensors are, as the current device, which was cuda:{current}")
    for what, tensor in found:
        if tensor is not None and tensor.device != other:
            raise case.failed(f"the {what} of tensors on {other} is on {tensor.device}")
    torch.cuda.synchronize(other)
    here = [(what, None if tensor is None else tensor.to(f"cuda:{current}")) for what, tensor in found]
    name, wrong = _gpu.difference(subject, case, here, expected)
    if name:
        raise case.failed(
            f"on {other}, while cuda:{current} is current, the {name}: {wrong}. A kernel is launched on the current "
            "device, which must be made the tensors' own first (a device guard)"
        )


def _other(current: int) -> torch.device:
    return torch.device("cuda", (current + 1) % torch.cuda.device_count())
