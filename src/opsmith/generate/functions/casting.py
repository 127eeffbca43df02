"""Casts, copies, and numbers of a tensor's dtype."""

from __future__ import annotations

from typing import Any

import torch

from .core import Call, Value, translates


def _identity(*names: str) -> None:
    @translates(*names)
    def build(call: Call, input: Any, *args: Any, **kwargs: Any) -> Value:
        if any(isinstance(given, (str, torch.device)) for given in (*args, *kwargs.values())):
            raise TypeError("a kernel works on the device of its tensors")
        # torch has run this call on a small tensor: what dtype comes out of it is known, and nothing else can change.
        return call.result(input)


_identity(
    "to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool",
    "clone", "contiguous",
)  # fmt: skip


@translates("detach")
def detach(call: Call, input: Any) -> Value:
    return call.builder.apply("detach", call.own(input))


@translates("zeros_like")
def zeros_like(call: Call, input: Any, **kwargs: Any) -> Value:
    return call.result(call.builder.constant(0, call.dtype))


@translates("ones_like")
def ones_like(call: Call, input: Any, **kwargs: Any) -> Value:
    return call.result(call.builder.constant(1, call.dtype))


@translates("full_like")
def full_like(call: Call, input: Any, fill_value: Any, **kwargs: Any) -> Value:
    return call.operand(fill_value)


@translates("copy_")
def copy_(call: Call, input: Any, src: Any, non_blocking: bool = False) -> Value:
    return call.result(src)


@translates("fill_")
def fill_(call: Call, input: Any, value: Any) -> Value:
    return call.result(value)


@translates("zero_")
def zero_(call: Call, input: Any) -> Value:
    return call.result(call.builder.constant(0, call.dtype))
