"""The text of an op's kernels, without compiling or running them: what `opsmith show --source` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import emit_cpp, emit_cuda, launch, tuning
from .compiler import Arguments, Compiler
from .expression import Program
from .launch import Job
from .layout import Variant

MULTIPROCESSORS = 132  # an H200's, where no GPU is at hand to ask; it decides how work is cut up, not the text


class Recorder:
    """A device that keeps the text of what it is asked to run."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self.vectorises = self._cuda
        self.texts: dict[str, str] = {}  # by entry name; of a reduction over two passes, each

    def uses(self, tensors: Sequence[torch.Tensor], *, more: bool = False) -> None:
        pass

    def target(self, index: int) -> str:
        return "text"

    def vector_width(self, itemsizes: Sequence[int]) -> int:
        return tuning.vector_width(itemsizes) if self._cuda else 1

    def segment_chunks(self, length: int, kept: int, vector: int, index: int) -> tuple[int, int]:
        if self._cuda:
            return tuning.segment_chunks(length, kept, vector, MULTIPROCESSORS)
        return emit_cpp.segment_chunks(length, kept)

    def column_chunks(self, columns: int, kept: int, rows: int, vector: int, index: int) -> tuple[int, int, int]:
        if self._cuda:
            return tuning.column_chunks(columns, kept, rows, vector, MULTIPROCESSORS)
        return emit_cpp.column_chunks(columns, kept, rows)

    def compile(self, program: Program, variant: Variant) -> None:
        if self._cuda:
            entry, text = emit_cuda.entry_name(program, variant), emit_cuda.text(program, variant)
        else:
            entry, text = emit_cpp.entry_name(program), emit_cpp.text(program, variant)
        while entry in self.texts:
            entry += "_"
        self.texts[entry] = text

    def launch(self, *arguments: Any) -> None:
        pass

    def combine(self, dtype: torch.dtype, jobs: Sequence[Job], index: int) -> None:
        pass


def texts(compiler: Compiler, device: str, args: Sequence[Any], backward: bool) -> dict[str, str]:
    """{entry name: text} of the kernels that a call with these arguments runs, or that its backward runs."""
    arguments = compiler.forward_arguments(args)
    recorder = Recorder(device)
    results = _run(compiler, recorder, arguments)
    if not backward:
        return recorder.texts
    recorder.texts.clear()
    saved = compiler.saved(arguments.tensors)
    kept = [result if index in saved.results else None for index, result in enumerate(results)]
    grads = [torch.empty_like(result) if result.is_floating_point() else None for result in results]
    needs = [tensor is not None and tensor.is_floating_point() for tensor in arguments.tensors]
    _run(compiler, recorder, compiler.backward_arguments([*grads, *args, *kept, needs]))
    return recorder.texts


def _run(compiler: Compiler, recorder: Recorder, arguments: Arguments) -> list[torch.Tensor]:
    prepared = compiler.prepared(arguments)
    if prepared is None:
        raise TypeError(f"{compiler.name} has no generated kernel for these dtypes")
    fresh = launch.Prepared(prepared.level, prepared.program)
    scalars = compiler.scalars(prepared, arguments.values)
    return launch.run(recorder, fresh, arguments.tensors, scalars, 0)


def example(compiler: Compiler, dtype: torch.dtype) -> list[Any]:
    """Arguments for an op without samples: tensors of one shape, defaults, ones."""
    return [
        torch.empty(16, 64, dtype=dtype)
        if argument.is_tensor
        else argument.default
        if argument.has_default
        else {"float": 1.0, "SymInt": 1, "bool": False}.get(argument.type)
        for argument in compiler.signature.arguments
    ]
