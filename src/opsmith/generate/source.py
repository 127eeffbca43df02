"""The source of an op's kernels, without compiling or running them: what `opsmith show --source` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..launch.planner import LayoutClass, Target
from . import emit_cpp, emit_cuda
from .compiler import Arguments, Compiler
from .expression import Program
from .launch import Device, Prepared, run
from .tuning import planner_tuning

MULTIPROCESSORS = 132  # an H200's, because there may be no GPU; it decides how work is divided, not the source


class Recorder(Device):
    """A device that records the source of each kernel and runs nothing."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._target = Target(self._cuda, MULTIPROCESSORS, planner_tuning()).row()
        self.texts: dict[str, str] = {}  # by entry name; one per pass of a reduction

    def architecture(self, index: int) -> str:
        return "text"

    def compile(self, program: Program, layout: LayoutClass) -> None:
        if self._cuda:
            entry, text = emit_cuda.entry_name(program, layout), emit_cuda.text(program, layout)
        else:
            entry, text = emit_cpp.entry_name(program), emit_cpp.text(program, layout)
        while entry in self.texts:
            entry += "_"
        self.texts[entry] = text

    def launch(self, *arguments: Any) -> None:
        pass

    def combine(self, *arguments: Any) -> None:
        pass


def texts(compiler: Compiler, device: str, args: Sequence[Any], backward: bool) -> dict[str, str]:
    """{entry name: source} of the kernels that a call with these arguments, or its backward, runs."""
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
    fresh = Prepared(prepared.level, prepared.program, prepared.inputs)
    return run(recorder, fresh, arguments.tensors, arguments.values, 0)


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
