"""The rules, one a file, in the order in which they are listed."""

from __future__ import annotations

from ..rule import Rule
from .contiguous_temporary import contiguous_temporary
from .default_stream import default_stream
from .device_synchronise import device_synchronise
from .empty_tensor import empty_tensor
from .float_atomics import float_atomics
from .float_only import float_only
from .int32_index import int32_index
from .messageless_check import messageless_check
from .missing_bounds_check import missing_bounds_check
from .missing_device_guard import missing_device_guard
from .no_grid_limit import no_grid_limit
from .unchecked_launch import unchecked_launch
from .undeclared_mutation import undeclared_mutation

RULES: tuple[Rule, ...] = (
    default_stream,
    missing_device_guard,
    unchecked_launch,
    empty_tensor,
    no_grid_limit,
    int32_index,
    missing_bounds_check,
    float_atomics,
    contiguous_temporary,
    device_synchronise,
    float_only,
    messageless_check,
    undeclared_mutation,
)
