"""Casts, copies, and tensors filled with one number."""

from __future__ import annotations

from typing import Any

import torch

from .core import Call, Value, of, translates


@translates(
    "to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool",
    "clone", "contiguous",
)  # fmt: skip
def cast(call: Call, input: Any, *args: Any, **kwargs: Any) -> Value:
    if any(isinstance(given, (str, torch.device)) for given in (*args, *kwargs.values())):
        raise TypeError("a kernel works on the device of its tensors")
    # torch has run this call on a small tensor: the dtype of the result is known, and nothing else can change.
    return call.result(input)


@translates("detach")
def detach(call: Call, input: Any) -> Value:
    return of("detach", call.own(input))


def _filled(name: str, number: int) -> None:
    @translates(name)
    def build(call: Call, input: Any, **kwargs: Any) -> Value:
        return call.result(call.builder.constant(number, call.dtype))


_filled("zeros_like", 0)
_filled("ones_like", 1)
_filled("zero_", 0)


@translates("full_like")
def full_like(call: Call, input: Any, fill_value: Any, **kwargs: Any) -> Value:
    return call.operand(fill_value)


@translates("copy_")
def copy_(call: Call, input: Any, src: Any, non_blocking: bool = False) -> Value:
    return call.result(src)


@translates("fill_")
def fill_(call: Call, input: Any, value: Any) -> Value:
    return call.result(value)
