"""Whether a kernel may take the cheaper forms of functions."""

from __future__ import annotations

import torch

from .expression import Node, Program
from .text import HALF

# Functions that have a fast form or, as division, a fast option. Their last bits differ from torch's.
_APPROXIMATED = {
    "div", "reciprocal", "sqrt", "rsqrt", "exp", "tanh", "sigmoid", "softplus", "tanh_softplus", "normal_cdf",
    "normal_pdf", "sinc", "floor_divide", "trunc_divide",
}  # fmt: skip
# Functions that make of a difference in the last bit a whole one, besides all whose value is no floating number.
_ABRUPT = {"floor", "ceil", "trunc", "round", "sign", "floor_divide", "trunc_divide", "remainder", "fmod"}


def fast_math(program: Program) -> bool:
    """Whether the last bits of a float are beyond notice: every floating tensor is of a half type, and nothing that
    jumps (a comparison, a rounding) is computed from what has a fast form."""
    tensors = [read.dtype for read in program.reads] + [result.dtype for result in program.results]
    floating = [dtype for dtype in tensors if dtype.is_floating_point]
    if not floating or any(dtype not in HALF for dtype in floating):
        return False
    approximate: set[Node] = set()
    for node in program.nodes():
        if node.function is None:
            continue
        touched = node.function.name in _APPROXIMATED and node.dtype is not torch.float64
        if touched or any(arg in approximate for arg in node.args):
            if node.function.name in _ABRUPT or not node.dtype.is_floating_point:
                return False
            approximate.add(node)
    return True
