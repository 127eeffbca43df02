"""IEEE rounding done once more, in fractions: what arithmetic with the rounding in its name must give, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy


class Binary(NamedTuple):
    """A binary floating-point format: bits of its fraction, its least and greatest exponent of a normal number."""

    fraction: int
    least: int
    greatest: int
    dtype: Any

    @property
    def largest(self) -> Fraction:
        return (2 - Fraction(1, 2**self.fraction)) * Fraction(2) ** self.greatest


FLOAT = Binary(23, -126, 127, numpy.float32)
DOUBLE = Binary(52, -1022, 1023, numpy.float64)
MODES = ("rn", "rz", "rd", "ru")


def whole(number: Fraction, mode: str) -> int:
    """A whole number next to a fraction."""
    if mode == "rn":
        return round(number)  # a tie goes to the even one
    return {"rz": math.trunc, "rd": math.floor, "ru": math.ceil}[mode](number)


def rounded(number: Fraction, mode: str, to: Binary) -> float:
    """The number of a format next to one that is not 0."""
    size = abs(number)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    step = Fraction(2) ** (max(exponent, to.least) - to.fraction)
    near, sign = whole(number / step, mode) * step, 1 if number > 0 else -1
    if abs(near) > to.largest:
        stays = mode == "rz" or mode == ("rd" if number > 0 else "ru")
        return sign * (float(to.largest) if stays else math.inf)
    return math.copysign(float(near), sign)


def square_root(number: Fraction) -> Fraction:
    """A root so near that it rounds as the true one does: to 2^-700, with a last bit that tells of what was dropped."""
    scaled = number * 4**700
    root = math.isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(root) ** 2 == scaled
    return Fraction(2 * root + (not exact), 2**701)


class Operation(NamedTuple):
    """An operation in fractions, and in numpy's arithmetic, which rounds to the nearest: right in every mode for what
    is not finite. `terms` are those of a sum, by whose signs a sum of 0 has its own."""

    exact: Callable[..., Fraction]
    near: Callable[..., Any]
    terms: Callable[..., tuple[float, float]] | None = None
    defined: Callable[..., bool] = lambda *_: True


OPERATIONS = {
    "add": Operation(lambda x, y: x + y, lambda x, y: x + y, lambda x, y: (x, y)),
    "sub": Operation(lambda x, y: x - y, lambda x, y: x - y, lambda x, y: (x, -y)),
    "mul": Operation(lambda x, y: x * y, lambda x, y: x * y),
    "div": Operation(lambda x, y: x / y, lambda x, y: x / y, defined=lambda _, y: y != 0),
    "rcp": Operation(lambda x: 1 / x, lambda x: x.dtype.type(1) / x, defined=lambda x: x != 0),
    "sqrt": Operation(square_root, numpy.sqrt, defined=lambda x: x > 0),
    "rsqrt": Operation(lambda x: square_root(1 / x), lambda x: 1 / numpy.sqrt(x), defined=lambda x: x > 0),
    "fma": Operation(
        lambda x, y, z: x * y + z,
        # A product of finite numbers is finite, though numpy's is not always.
        lambda x, y, z: numpy.where(numpy.isfinite(x) & numpy.isfinite(y) & numpy.isinf(z), z, x * y + z),
        lambda x, y, z: (math.copysign(1, x) * math.copysign(1, y), z),
    ),
}


def wanted(operation: Operation, mode: str, to: Binary, *values: Any) -> Any:
    """What an operation must give in a rounding mode."""
    with numpy.errstate(all="ignore"):
        found = operation.near(*values)
    for i, each in enumerate(zip(*values, strict=True)):
        numbers = [float(value) for value in each]
        if not all(map(math.isfinite, numbers)) or not operation.defined(*numbers):
            continue
        exact = operation.exact(*map(Fraction, numbers))
        if exact != 0:
            found[i] = rounded(exact, mode, to)
        elif operation.terms is not None:
            first, second = (math.copysign(1, term) for term in operation.terms(*numbers))
            found[i] = math.copysign(0.0, first if first == second else -1 if mode == "rd" else 1)
    return found


def same(given: Any, wanted: Any) -> Any:
    """Where the bits agree; a NaN agrees with any other."""
    bits = numpy.dtype(f"u{given.dtype.itemsize}")
    both_nan = numpy.isnan(given) & numpy.isnan(wanted) if given.dtype.kind == "f" else False
    return (given.view(bits) == wanted.astype(given.dtype).view(bits)) | both_nan


def specials(to: Binary) -> list[float]:
    """Numbers at the ends of a format, and where rounding is delicate."""
    tiny, smallest = float(to.dtype(2.0 ** (to.least - to.fraction))), 2.0**to.least
    found = [0.0, tiny, smallest - tiny, smallest, 1.0, 1 + 2.0**-to.fraction, 1.5, 3.0, 1 / 3, 2.0**to.fraction]
    found += [float(to.largest), float(to.largest) / 2, math.pi, 1e10, 0.1]
    return [sign * number for number in found for sign in (1, -1)] + [math.inf, -math.inf, math.nan]


def samples(to: Binary, count: int, seed: int) -> Any:
    """Special numbers, and random ones: of any exponent, and near each other."""
    random = numpy.random.default_rng(seed)
    bits = random.integers(0, 2 ** (8 * numpy.dtype(to.dtype).itemsize), count // 2, numpy.uint64)
    wild = bits.astype(f"u{numpy.dtype(to.dtype).itemsize}").view(to.dtype)
    near = random.normal(size=count - count // 2) * 2.0 ** random.integers(-3, 4, count - count // 2)
    with numpy.errstate(over="ignore"):
        return numpy.concatenate([numpy.array(specials(to)).astype(to.dtype), wild, near.astype(to.dtype)])
