"""Cases with sizes at which launches fail: an empty grid, a grid that is too large, rows too long for shared memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..cases.case import Case
from ..subject import SMALL, Subject

QUICK, FULL = (0, 65537), (0, 65537, (1 << 20) + 1)
"""65535 is the most that a grid has along y and z."""
MOST = 1 << 25
"""Elements of a tensor."""


def odd_cases(subject: Subject) -> Iterator[Case]:
    """The case whose dimensions are most unlike each other, with each of its sizes in turn made one of these, in all
    tensors that have it: what is of one size is so for a reason. An op may refuse them."""
    whole = [case for case in subject.cases(limit=SMALL) if case.has_elements]
    if not whole:
        return
    case = max(whole, key=lambda case: len(_sizes(case)))
    for new in FULL if subject.full else QUICK:
        for old in _sizes(case):
            elements = (tensor.numel() // old ** _count(tensor, old) * new ** _count(tensor, old)
                        for tensor in case.every_tensor())  # fmt: skip
            if max(elements) <= MOST:
                yield stretched(case, old, new)


def stretched(case: Case, old: int, new: int) -> Case:
    """With every dimension of size `old` made `new` by repeating what is there."""
    long = case.named(f"{case.name}, {new} in the place of {old}")
    for argument, value in zip(case.arguments, case.values, strict=True):
        if isinstance(value, torch.Tensor):
            long = long.changed(argument.name, _longer(value, old, new), _code(argument.name, value, old, new))
        elif argument.is_tensor and value is not None:
            codes = [
                "None" if each is None else _code(f"{argument.name}[{index}]", each, old, new)
                for index, each in enumerate(value)
            ]
            values = [None if each is None else _longer(each, old, new) for each in value]
            long = long.changed(argument.name, values, f"[{', '.join(codes)}]")
    return long


def _sizes(case: Case) -> list[int]:
    return sorted({size for tensor in case.every_tensor() for size in tensor.shape if size > 1})


def _count(tensor: torch.Tensor, size: int) -> int:
    return list(tensor.shape).count(size)


def _longer(tensor: torch.Tensor, old: int, new: int) -> torch.Tensor:
    for dim, size in enumerate(tensor.shape):
        if size == old:
            tensor = tensor.index_select(dim, torch.arange(new, device=tensor.device) % old)
    return tensor


def _code(name: str, tensor: torch.Tensor, old: int, new: int) -> str:
    dims = [dim for dim, size in enumerate(tensor.shape) if size == old]
    return name + "".join(f".index_select({dim}, torch.arange({new}, device={name}.device) % {old})" for dim in dims)
