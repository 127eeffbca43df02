"""The arguments of a call, as the rows of numbers from which a shipped library makes the key that finds its program.

native/operators.h reads them (add_to_key), and builds keys by the same functions for calls at run time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import torch

from ...reference.signature import Argument, Kind
from ...reference.tensors import scalar_type

DTYPE, TENSOR, ABSENT, COUNT, NONE, BOOL, INT, FLOAT, TEXT, LIST = range(10)
_LISTS = (Kind.TENSOR_LIST, Kind.OPTIONAL_TENSOR_LIST)


def key_row(arguments: Sequence[Argument], statics: Sequence[bool], values: Sequence[Any]) -> tuple[int, ...]:
    """The row of a call. `statics`: which arguments are compiled in; of a tensor, its number of dimensions. The default
    dtype is float32."""
    parts: list[tuple[int, ...]] = [(DTYPE, scalar_type(torch.float32))]
    for argument, static, value in zip(arguments, statics, values, strict=True):
        if argument.kind in _LISTS:
            parts.append((COUNT, len(value)))
            parts += [_of_tensor(tensor, static) for tensor in value]
        elif argument.is_tensor:
            parts.append(_of_tensor(value, static))
        elif static:
            parts += _of_value(value)
    return (len(parts), *(number for part in parts for number in part))


def _of_tensor(tensor: torch.Tensor | None, counted: bool) -> tuple[int, ...]:
    return (ABSENT,) if tensor is None else (TENSOR, scalar_type(tensor.dtype), tensor.ndim, int(counted))


def _of_value(value: Any) -> list[tuple[int, ...]]:
    if value is None:
        return [(NONE,)]
    if isinstance(value, bool):
        return [(BOOL, int(value))]
    if isinstance(value, int):
        return [(INT, value)]
    if isinstance(value, float):
        return [(FLOAT, *struct.unpack("<q", struct.pack("<d", value)))]
    if isinstance(value, str):
        text = value.encode()
        return [(TEXT, len(text), *text)]
    if isinstance(value, (list, tuple)):
        return [(LIST, len(value)), *(part for item in value for part in _of_value(item))]
    raise TypeError(f"a {type(value).__name__} is not part of a key")
