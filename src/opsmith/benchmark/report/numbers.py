"""Numbers for reading: three significant digits, and fitting units."""

from __future__ import annotations

import math
from typing import Any

SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def number(value: Any) -> float | None:
    """A value of a row as a number; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:  # an integer of four hundred digits
        return None
    return found if math.isfinite(found) else None


def positive(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and found > 0 else None


def three(value: float) -> str:
    """'1,788', '34.5', '2.14', '0.355'."""
    size = abs(value)
    places = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 or size == 0 else 3
    return f"{value:,.{places}f}"


def si(value: float, unit: str) -> str:
    """'4.18 TB/s'."""
    scale, prefix = next((each for each in SI if value >= each[0]), SI[-1])
    return f"{three(value / scale)} {prefix}{unit}"


def memory(count: float) -> str:
    """'1.50 KiB', '64 bytes'."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{three(count / (1 << power))} {unit}"
    return f"{count:.0f} bytes"


def times(ratio: float) -> str:
    return f"{three(ratio)}\N{MULTIPLICATION SIGN}"


def percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.0995 else 1}f} %"
