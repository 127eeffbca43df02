"""The text of a kernel: which emitter writes it."""

from __future__ import annotations

from ..launch.planner import LayoutClass
from . import emit_cpp, emit_cuda
from .expression import Program
from .rows import emit_cpp as rows_cpp
from .rows import emit_cuda as rows_cuda


def cpp(program: Program, layout: LayoutClass) -> str:
    if layout.path == "row":
        return rows_cpp.text(program, layout)
    return emit_cpp.text(program, layout)


def cuda(program: Program, layout: LayoutClass) -> str:
    if layout.path == "row":
        return rows_cuda.text(program, layout)
    return emit_cuda.text(program, layout)
