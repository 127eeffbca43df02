"""The source of an op's kernels, without compiling or running them: `opsmith show --source` prints it, `opsmith build`
compiles it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..launch.planner import LayoutClass, Target
from . import emit, emit_cpp, emit_cuda
from .compiler import Arguments, Compiler
from .expression import Program
from .launch import Device, Prepared, run, sums_of
from .tuning import planner_tuning

MULTIPROCESSORS = 132  # an H200's, because there may be no GPU; it decides how work is divided, not the source


class Source(NamedTuple):
    """What a kernel is compiled from."""

    entry: str
    text: str


class Run(NamedTuple):
    """A recorded call: of which operator of the op (GeneratedCall's role), with which arguments, and the kernels that
    it ran, each of them a Source."""

    role: str
    args: Sequence[Any]
    prepared: Prepared


class Recorder(Device):
    """A device that records the source of each kernel and runs nothing. `combines`: the kernels that add partial
    sums, which ops share, by dtype and number of results; also where only larger calls need them."""

    def __init__(self, device: str, multiprocessors: int = MULTIPROCESSORS, cluster: int = 16) -> None:
        self._cuda = device == "cuda"
        self._target = Target(self._cuda, multiprocessors, planner_tuning(), cluster).row()
        self.texts: dict[str, str] = {}  # by entry name; one per pass of a reduction
        self.combines: dict[tuple[torch.dtype, int], str] = {}
        self.runs: list[Run] = []

    def architecture(self, index: int) -> str:
        return "text"

    def compile(self, program: Program, layout: LayoutClass) -> Source:
        if self._cuda:
            entry, text = emit_cuda.entry_name(program, layout), emit.cuda(program, layout)
        else:
            entry, text = emit_cpp.entry_name(program), emit.cpp(program, layout)
        if text not in self.texts.values():
            name = entry
            while name in self.texts:
                name += "_"
            self.texts[name] = text
        for dtype, sums in sums_of(program, layout).items():
            if self._cuda:
                self.combines[dtype, sums] = emit_cuda.combine_text(dtype, sums)
            else:
                self.combines[dtype, 1] = emit_cpp.combine_text(dtype)
        return Source(entry, text)

    def launch(self, *arguments: Any) -> None:
        pass

    def combine(self, *arguments: Any) -> None:
        pass


def texts(compiler: Compiler, device: str, args: Sequence[Any], backward: bool) -> dict[str, str]:
    """{entry name: source} of the kernels that a call with these arguments, or its backward, runs."""
    recorder = Recorder(device)
    results = record(compiler, recorder, args)
    if backward:
        recorder.texts.clear()
        record_backward(compiler, recorder, args, results)
    return recorder.texts


def record(compiler: Compiler, recorder: Recorder, args: Sequence[Any]) -> list[torch.Tensor]:
    """Records the kernels of a call, which returns memory that nobody has written; a TypeError if there are none."""
    arguments = compiler.forward_arguments(args)
    if compiler.signature.mutated:
        pairs = zip(compiler.signature.tensors, arguments.tensors, strict=True)
        changed = [tensor for argument, tensor in pairs if argument.mutated and tensor is not None]
        _run(compiler, recorder, "inplace", args, arguments, changed)
    return _run(compiler, recorder, "forward", args, arguments)


def record_out(compiler: Compiler, recorder: Recorder, args: Sequence[Any], results: Sequence[torch.Tensor]) -> None:
    """Records the kernels of a call that writes into tensors like its results."""
    outs = [torch.empty_like(result) for result in results]
    _run(compiler, recorder, "out", [*args, *outs], compiler.forward_arguments(args), outs)


def record_backward(
    compiler: Compiler,
    recorder: Recorder,
    args: Sequence[Any],
    results: Sequence[torch.Tensor],
    needs: Sequence[bool] | None = None,
    expanded: bool = False,
) -> None:
    """Records the kernels of a call's backward. `needs`: the tensors that need a gradient; all that can have one.
    `expanded`: with incoming gradients that are one number, as those of a sum are."""
    arguments = compiler.forward_arguments(args)
    saved = compiler.saved(arguments.tensors)
    kept = [result if index in saved.results else None for index, result in enumerate(results)]
    grads = [
        None if not result.is_floating_point()
        else result.new_empty(()).expand(result.shape) if expanded
        else torch.empty_like(result)
        for result in results
    ]  # fmt: skip
    needs = needs or [tensor is not None and tensor.is_floating_point() for tensor in arguments.tensors]
    own = [*grads, *args, *kept, list(needs)]
    _run(compiler, recorder, "backward", own, compiler.backward_arguments(own))


def _run(
    compiler: Compiler,
    recorder: Recorder,
    role: str,
    args: Sequence[Any],
    arguments: Arguments,
    outs: Sequence[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    prepared = compiler.prepared(arguments)
    if prepared is None:
        raise TypeError(f"{compiler.name} has no generated kernel for these dtypes")
    fresh = Prepared(prepared.level, prepared.program, prepared.inputs)
    recorder.runs.append(Run(role, args, fresh))
    return run(recorder, fresh, arguments.tensors, arguments.values, 0, outs)


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
