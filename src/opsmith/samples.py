"""What an op is run on, and what it costs: given by the author, used by check, bench and demo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One call of an op: `op(*args, **kwargs)`."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Cost:
    """The least an op must do for one call: bytes moved through memory, floating-point operations."""

    bytes: int = 0
    flops: int = 0
