"""The two 16-bit formats, for the tests: the kernels' text, and rounding done once more, by other means than C++'s."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import torch

_ROUND: dict[str, tuple[Callable[[Any], Any], Callable[[Fraction], int]]] = {
    "rn": (numpy.rint, round),  # both take a tie to the even one
    "rz": (numpy.trunc, math.trunc),
    "rd": (numpy.floor, math.floor),
    "ru": (numpy.ceil, math.ceil),
}


class Format:
    def __init__(self, word: str, type: str, dtype: torch.dtype, fraction: int, exponent: int) -> None:
        self.word, self.type, self.dtype, self.fraction = word, type, dtype, fraction
        self.top = (1 << exponent - 1) - 1  # the exponents go from 1 - top to top
        self.largest = (2 - 2.0**-fraction) * 2.0**self.top

    def text(self) -> str:
        text = (Path(__file__).parent / "half.cu").read_text()
        text = text.replace("NUMBER", self.type).replace("PAIR", self.type + "2")
        header = "cuda_fp16.h" if self.word == "half" else "cuda_bf16.h"
        return f"#include <{header}>\n#define NAMED(before, after) before##{self.word}##after\n{text}"

    def numbers(self, bits: Any) -> Any:
        """What these bits stand for, as float64."""
        with numpy.errstate(invalid="ignore"):  # of a signalling NaN
            if self.word == "half":
                return bits.view(numpy.float16).astype(numpy.float64)
            return (bits.astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64)

    def bits(self, numbers: Any) -> Any:
        """The bits of numbers that the format has; NaN as a GPU gives it."""
        with numpy.errstate(invalid="ignore"):
            if self.word == "half":
                bits = numbers.astype(numpy.float16).view(numpy.uint16)
            else:
                bits = (numbers.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)
        return numpy.where(numpy.isnan(numbers), numpy.uint16(0x7FFF), bits)

    def rounded(self, numbers: Any, mode: str = "rn") -> Any:
        """The bits of the format's number next to each float64, which is one of them or lies between two."""
        with numpy.errstate(invalid="ignore", over="ignore"):
            numbers = numpy.asarray(numbers, numpy.float64)
            finite = numpy.where(numpy.isfinite(numbers), numbers, 0.0)
            step = numpy.maximum(numpy.frexp(finite)[1] - 1, 1 - self.top) - self.fraction
            near = numpy.ldexp(_ROUND[mode][0](numpy.ldexp(finite, -step)), step)
        near = numpy.copysign(self._within_range(near, mode), finite)
        return self.bits(numpy.where(numpy.isfinite(numbers), near, numbers))

    def _within_range(self, near: Any, mode: str) -> Any:
        stays = {"rn": False, "rz": True, "rd": near > 0, "ru": near < 0}[mode]
        beyond = numpy.where(stays, self.largest, numpy.inf)
        return numpy.where(numpy.abs(near) > self.largest, beyond, numpy.abs(near))

    def rounded_exactly(self, number: Fraction, mode: str = "rn") -> float:
        """The same of any number but 0, as a float."""
        size = abs(number)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if Fraction(2) ** exponent > size:
            exponent -= 1
        step = Fraction(2) ** (max(exponent, 1 - self.top) - self.fraction)
        near = float(_ROUND[mode][1](number / step) * step)  # exact: the format's numbers are floats
        return math.copysign(float(self._within_range(numpy.float64(near), mode)), number)

    def tensor(self, bits: Any) -> torch.Tensor:
        return torch.from_numpy(bits.view(numpy.int16)).view(self.dtype)

    def order(self, bits: Any) -> Any:
        """Integers in the order of the numbers, -0 before +0."""
        return numpy.where(bits & 0x8000, 0x7FFF - (bits & 0x7FFF).astype(int), 0x8000 + bits.astype(int))


FORMATS = {
    "half": Format("half", "__half", torch.float16, fraction=10, exponent=5),
    "bfloat16": Format("bfloat16", "__nv_bfloat16", torch.bfloat16, fraction=7, exponent=8),
}
