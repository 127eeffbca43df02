"""Tensors on a GPU other than the current one are computed there, and the current device does not change."""

from __future__ import annotations

from typing import Any

import torch

from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from . import _gpu
from ._choice import outputs_of

ON = ("cuda",)
ORDER = 63


def check(subject: Subject) -> str:
    if torch.cuda.device_count() < 2:
        raise Skipped("this machine has one GPU")
    current = torch.cuda.current_device()
    other = torch.device("cuda", (current + 1) % torch.cuda.device_count())
    cases = _gpu.writable_cases(subject)
    for choice in _gpu.choices(subject):
        for case in cases:
            with _gpu.chosen(subject, choice):
                _look(subject, case, choice, other)
    return f"on {other}, while cuda:{current} is current"


def _look(subject: Subject, case: Case, choice: str, other: torch.device) -> None:
    current = torch.cuda.current_device()
    gradients = subject.differentiates(case)
    expected = _gpu.evaluated(subject, case, gradients)
    moved = case.each_tensor(lambda tensor: tensor.to(other), f'{{}}.to("{other}")')

    def failed(message: str, *lines: Any) -> Failed:
        shown = [f"found = {outputs_of(case, gradients)}", *lines]
        return Failed(f"{case.name}{_gpu.by(choice)}: {message}", moved, _gpu.using(choice, shown))

    torch.cuda.synchronize(other)
    found = _gpu.evaluated(subject, moved, gradients)
    if torch.cuda.current_device() != current:
        torch.cuda.set_device(current)
        raise failed(
            f"it leaves {other}, where its tensors are, as the current device, which was cuda:{current}",
            f"assert torch.cuda.current_device() == {current}",
        )
    for what, tensor in found:
        if tensor is not None and tensor.device != other:
            raise failed(
                f"the {what} of tensors on {other} is on {tensor.device}",
                f'assert all(each is None or each.device == torch.device("{other}") for each in found)',
            )
    torch.cuda.synchronize(other)
    here = [(what, None if tensor is None else tensor.to(f"cuda:{current}")) for what, tensor in found]
    wrong = _gpu.unlike(subject, case, here, expected)
    if wrong:
        raise failed(
            f"on {other}, while cuda:{current} is current, the {wrong}. A kernel is launched on the current device, "
            "which must be made the tensors' own first (a device guard)",
            f'torch.cuda.synchronize("{other}")',
            *case.each_tensor(torch.clone, f'{{}}.to("cuda:{current}")').lines[len(case.lines) :],
            f"expected = {outputs_of(case, gradients)}",
            f'found = [each if each is None else each.to("cuda:{current}") for each in found]',
            _gpu.EQUAL,
        )
