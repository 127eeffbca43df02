"""Kernels made of names: one applies each of some functions of one signature to each element of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy
import torch

import opsmith
from opsmith.kernels.cuda_source.source import CudaSource

from .exact_rounding import same

_NUMPY = {
    "float": numpy.float32, "double": numpy.float64, "int": numpy.int32, "unsigned": numpy.uint32,
    "long long": numpy.int64, "unsigned long long": numpy.uint64, "float2": numpy.float32,
}  # fmt: skip


class Group(NamedTuple):
    """Functions of one signature."""

    name: str
    result: str
    parameters: Sequence[str]
    functions: Sequence[str]

    def text(self) -> str:
        taken = "".join(f"const {kind}* x{i}, " for i, kind in enumerate(self.parameters))
        given = ", ".join(f"x{i}[i]" for i in range(len(self.parameters)))
        calls = "".join(f"  out[{k}LL * n + i] = {f}({given});\n" for k, f in enumerate(self.functions))
        return (
            f"__global__ void {self.name}({taken}{self.result}* out, int n) {{\n"
            f"  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n{calls}}}\n"
        )


def source(groups: Sequence[Group]) -> CudaSource:
    return opsmith.cuda_source("\n".join(group.text() for group in groups))


def applied(cu: CudaSource, group: Group, *arguments: Any, device: str = "cpu") -> dict[str, Any]:
    """What each function gives, as an array of the arguments' length."""
    width = 2 if group.result == "float2" else 1
    n = len(arguments[0]) // width
    given = [
        torch.from_numpy(numpy.ascontiguousarray(x, _NUMPY[kind])).to(device)
        for x, kind in zip(arguments, group.parameters, strict=True)
    ]
    out = torch.from_numpy(numpy.zeros((len(group.functions), n * width), _NUMPY[group.result])).to(device)
    cu[group.name][-(-n // 128), 128](*given, out, n)
    return dict(zip(group.functions, out.cpu().numpy(), strict=True))


def check(given: dict[str, Any], wanted: dict[str, Any], values: Sequence[Any]) -> None:
    """Whether functions have given, bit for bit, what they should of some values."""
    for name, numbers in wanted.items():
        agree = same(given[name], numbers)
        wrong = [(*(v[i] for v in values), given[name][i], numbers[i]) for i in numpy.flatnonzero(~agree)[:3]]
        assert agree.all(), f"{name} of {wrong}, the last of which is what it should give"
