"""Samples and costs: what check, bench and demo run an op on, and the least that a call must cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidSampleError


@dataclass(frozen=True)
class Sample:
    """One call of an op: `op(*args, **kwargs)`."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        # A tensor would be unpacked row by row into arguments.
        if not isinstance(self.args, (tuple, list)):
            raise InvalidSampleError(f"Sample was given {_type(self.args)} for args.")
        if not isinstance(self.kwargs, Mapping):
            raise InvalidSampleError(f"Sample was given {_type(self.kwargs)} for kwargs, which must be a dictionary.")
        if not isinstance(self.name, str):
            raise InvalidSampleError(f"Sample was given {_type(self.name)} for its name, which must be a string.")
        object.__setattr__(self, "args", tuple(self.args))


@dataclass(frozen=True)
class Cost:
    """The least an op must do for one call: bytes moved through memory, floating-point operations."""

    bytes: int = 0
    flops: int = 0

    def __post_init__(self) -> None:
        for field_ in ("bytes", "flops"):
            count = getattr(self, field_)
            try:
                whole = math.ceil(count)  # of NumPy's numbers too
            except (TypeError, ValueError, OverflowError):
                whole = -1
            if whole < 0:
                raise ValueError(f"Cost({field_}={count!r}): expected a number, zero or more")
            object.__setattr__(self, field_, whole)


def samples_of(function: Callable[..., Any], op: str, *device_and_dtype: Any) -> list[Sample]:
    """The samples that the author's function yields, checked."""
    returned = function(*device_and_dtype)
    if not isinstance(returned, Iterable):
        what = f"The function that makes the samples of {op} must yield them, but it returned {_type(returned)}."
        raise InvalidSampleError(what, function)
    samples = list(returned)
    for sample in samples:
        if not isinstance(sample, Sample):
            what = f"The samples of {op} must be opsmith.Sample, but one is {_type(sample)}."
            raise InvalidSampleError(what, function)
    return samples


def _type(value: object) -> str:
    return f"a {type(value).__name__}"
