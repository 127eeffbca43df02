"""Which kernels the samples of an op reach: each is recorded as a build, and none is run.

Generated kernels are planned for every processor and every GPU of the table; for a GPU, the calls are those of a CPU's
samples and of a GPU's. Kernels of a CudaSource, which Python or C++ functions launch, are recorded while those
functions run on CPU tensors, with launches that do nothing: the results are uninitialized memory. Extensions are built
whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from ..emulator import emulate
from ..generate import emit_cpp, emit_cuda
from ..generate.compiler import Compiler
from ..generate.devices import compile_cuda, cpu_build
from ..generate.generation import LoopGeneration
from ..generate.source import Recorder, record, record_backward, record_out
from ..kernels import emulation, languages
from ..kernels.cuda_source import CudaSource, Launch
from ..kernels.extension import ExtensionFunction
from ..kernels.kernel import DEFAULT
from ..launch.driver import largest_cluster
from ..launch.gpu import Gpu
from ..launch.planner import Unplanned
from ..operator.op import Op
from ..operator.samples import Sample
from .gpu_samples import gpu_samples, on_cpu, size_in_bytes
from .gpus import recorded

Call = tuple[Sequence[Any], list[Sequence[bool]]]
"""The arguments of a call, and the sets of tensors that need a gradient."""
Calls = Sequence[Call]
MOST_BYTES = 1 << 28
"""Of the tensors of a call whose launches are recorded: it runs on copies in memory."""
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Wanted:
    """A kernel to build: for which processor or architecture, its name in messages, and how it is built."""

    op: str
    place: str
    label: str
    build: Callable[[], Path] = field(compare=False)
    identity: object = field(hash=True)


@dataclass
class Recording:
    """What was found for one op. `by_name`: the kernels that C++ launches, by the spellings that it uses. `notes`: what
    could not be recorded, and why."""

    op: str
    wanted: dict[Wanted, None] = field(default_factory=dict)
    by_name: dict[CudaSource, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, place: str, label: str, identity: object, build: Callable[[], Path]) -> None:
        self.wanted.setdefault(Wanted(self.op, place, label, build, (place, identity)))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def record_op(op: Op, targets: Sequence[str], processors: Sequence[str] = emit_cpp.CAPABILITIES) -> Recording:
    """The builds of an op's kernels for these processors and GPU targets."""
    found = Recording(op.name)
    calls = list(calls_of(op, found))
    if op.is_generated:
        for values, needs in calls:
            _record_on_cpu(op, found, values, needs, processors)
    if targets:
        calls = calls_on_gpu(op, found)
        gpus = recorded(targets)
        if op.is_generated:
            for values, needs in calls:
                _record_on_gpu(op, found, values, needs, targets, gpus)
        if choices := _choices_with_cuda(op):
            for gpu in gpus:
                _record_launches(op, found, calls, choices, targets, gpu)
    return found


# --- the calls --------------------------------------------------------------------------------------------------------


def calls_of(op: Op, found: Recording, without_python: bool = False, device: str = "cpu") -> Iterator[Call]:
    """The arguments of each sample in each dtype, and the sets of tensors that need a gradient. `without_python`: for a
    library, where no reference runs for other calls. The tensors of samples for "cuda" are meta tensors."""
    if op.samples is None and op.prebuild is None:
        found.note("it has no samples: register_samples says which calls to build for")
    for dtype in DTYPES:
        for sample in _samples(op, dtype, found, device):
            try:
                values = op.signature.bind_call(sample.args, dict(sample.kwargs))
            except TypeError as error:
                found.note(f"sample {sample.name or '?'}: {error}")
                continue
            needs = _needs(op.signature.flatten(values))
            yield values, needs
            if without_python and op.is_generated:
                for variant in _variants(op, values):
                    yield variant, needs


def _variants(op: Op, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Calls that users are likely to make as well: with contiguous tensors, and with one row instead of many, which may
    broadcast differently."""
    tensors = op.signature.flatten(values)
    given = [tensor for tensor in tensors if tensor is not None]
    if not all(tensor.is_contiguous() for tensor in given):
        yield op.signature.unflatten(values, [None if t is None else t.contiguous() for t in tensors])
    full = max((tensor.ndim for tensor in given), default=0)
    if full > 1 and len({tensor.shape for tensor in given}) > 1:
        first = [None if t is None else t[:1].contiguous() if t.ndim == full else t for t in tensors]
        yield op.signature.unflatten(values, first)


def calls_on_gpu(op: Op, found: Recording, without_python: bool = False) -> list[Call]:
    """The calls of the samples for a CPU, and those for a GPU that differ from them."""
    calls = [call for device in ("cpu", "cuda") for call in calls_of(op, found, without_python, device)]
    return list({_described(op, call): call for call in calls}.values())


def _described(op: Op, call: Call) -> str:
    """What a recording depends on."""
    values, needs = call
    tensors = [
        t if t is None else (t.dtype, t.shape, t.stride(), t.storage_offset()) for t in op.signature.flatten(values)
    ]
    others = [value for value, of in zip(values, op.signature.arguments, strict=True) if not of.is_tensor]
    return repr((tensors, others, needs))


def _samples(op: Op, dtype: torch.dtype, found: Recording, device: str) -> Iterable[Sample]:
    samples: list[Sample] = []
    what = f"in {str(dtype).removeprefix('torch.')}"
    for function in filter(None, (op.samples, op.prebuild)):
        try:
            samples += gpu_samples(function, dtype) if device == "cuda" else function(torch.device("cpu"), dtype)
        except Exception as error:  # the author's code
            reason = f"{type(error).__name__}: {error}"
            if device == "cpu":
                found.note(f"no samples {what}: {reason}")
            elif f"no samples {what}: {reason}" not in found.notes:
                found.note(f"no samples for GPUs {what}, which are made without values: {reason}")
    return samples


def _needs(tensors: Sequence[torch.Tensor | None]) -> list[Sequence[bool]]:
    """Those of the sample's tensors that require a gradient; if none does, all, and all but the first, as in the first
    layer of a model."""
    given = [tensor is not None and tensor.requires_grad for tensor in tensors]
    if any(given):
        return [given]
    every = [tensor is not None and tensor.is_floating_point() for tensor in tensors]
    first = next((index for index, needed in enumerate(every) if needed), None)
    if first is None:
        return []
    others = [needed and index != first for index, needed in enumerate(every)]
    return [every, others] if any(others) else [every]


# --- generated kernels ------------------------------------------------------------------------------------------------


def _record_on_cpu(
    op: Op, found: Recording, values: Sequence[Any], needs: list[Sequence[bool]], processors: Sequence[str]
) -> None:
    for capability in processors:
        with emit_cpp.written_for(capability):
            recorder = Recorder("cpu")
            record_calls(op, found, recorder, values, needs)
            for entry, text in _entries(recorder, emit_cpp.COMBINE):
                found.add(capability, entry, text, cpu_build(text, entry))


def _record_on_gpu(
    op: Op,
    found: Recording,
    values: Sequence[Any],
    needs: list[Sequence[bool]],
    targets: Sequence[str],
    gpus: Sequence[Gpu],
) -> None:
    sizes = {(gpu.multiprocessors, largest_cluster(gpu.arch)) for gpu in gpus}
    generation = op._families.generation
    if isinstance(generation, LoopGeneration) and generation.compiler.rows:
        # Also for few rows and for many, whatever the sample has.
        sizes |= {(multiprocessors, cluster) for _, cluster in sizes for multiprocessors in (1, 1 << 20)}
    for multiprocessors, cluster in sizes:
        recorder = Recorder("cuda", multiprocessors, cluster)
        record_calls(op, found, recorder, values, needs)
        for entry, text in _entries(recorder, emit_cuda.COMBINE):
            for target in targets:
                if emit_cuda.cluster_of(text) <= largest_cluster(target):
                    found.add(target, entry, text, functools.partial(compile_cuda, text, entry, target))


def record_calls(
    op: Op,
    found: Recording,
    recorder: Recorder,
    values: Sequence[Any],
    needs: Sequence[Sequence[bool]],
    without_python: bool = False,
) -> None:
    """A call with these arguments and its backward, for each set of tensors that need a gradient. `without_python`:
    also the gradients that a direct caller of the backward operator requests, who does not know of passthrough ones."""
    generation = op._families.generation
    assert isinstance(generation, LoopGeneration)
    compiler = generation.compiler
    try:
        results = record(compiler, recorder, values)
        if not op.signature.mutated:
            record_out(compiler, recorder, values, results)
        computed = [_computed(compiler, values, results, each) for each in needs]
        for asked in dict.fromkeys([*computed, *(map(tuple, needs) if without_python else ())]):
            if any(asked):
                record_backward(compiler, recorder, values, results, asked)
        for asked in computed[:1]:
            if any(asked):
                record_backward(compiler, recorder, values, results, asked, expanded=True)
    except Unplanned:
        if all(tensor.numel() for tensor in compiler.signature.flatten(values) if tensor is not None):
            found.note("a sample that no single kernel can compute: the reference runs for calls like it")
    except Exception as error:  # a call that the reference must serve, too
        found.note(f"{type(error).__name__}: {error}".splitlines()[0])


def _computed(
    compiler: Compiler, values: Sequence[Any], results: Sequence[torch.Tensor], needs: Sequence[bool]
) -> tuple[bool, ...]:
    """The gradients that autograd requests from the kernel: all that are needed, except passthrough gradients."""
    tensors = compiler.signature.flatten(values)
    saved = compiler.saved(tensors).inputs

    def passes(slot: int) -> bool:
        place = compiler.passthrough[slot] if compiler.passthrough else None
        tensor = tensors[slot]
        if place is None or tensor is None or slot in saved:
            return False
        return (tensor.shape, tensor.dtype) == (results[place].shape, results[place].dtype)

    return tuple(needed and not passes(slot) for slot, needed in enumerate(needs))


def _entries(recorder: Recorder, combine: str) -> Iterator[tuple[str, str]]:
    for entry, text in recorder.texts.items():
        yield entry.rstrip("_"), text
    for text in dict.fromkeys(recorder.combines.values()):
        yield combine, text


# --- kernels of a CudaSource ------------------------------------------------------------------------------------------


def _choices_with_cuda(op: Op) -> list[str]:
    """The choices of `using` whose "cuda" kernel launches kernels of a CudaSource."""
    registered = op._families.registered.values()
    return list(
        dict.fromkeys(
            given.name
            for given in registered
            if given.device == "cuda"
            and (
                given.function.extension.kernels is not None
                if isinstance(given.function, ExtensionFunction)
                else languages.CUDA in languages.written_in(given.function)
            )
        )
    )


def record_names(op: Op, calls: Calls, targets: Sequence[str]) -> Recording:
    """The kernels that the op's default kernels launch by name, from C++."""
    found = Recording(op.name)
    for gpu in recorded(targets):
        _record_launches(op, found, calls, [DEFAULT], targets, gpu)
    return found


def _record_launches(
    op: Op,
    found: Recording,
    calls: Calls,
    choices: Sequence[str],
    targets: Sequence[str],
    gpu: Gpu,
) -> None:
    def add(source: CudaSource, name: str) -> None:
        unit = source._current().unit(name)
        for target in targets:
            label = f"{unit or 'kernels'} of {source.label}"
            found.add(target, label, (source, unit), functools.partial(_build, source, unit, name, target))

    def launched(launch: Launch, args: Sequence[Any]) -> None:
        add(launch.kernel.source, launch.kernel.name)

    def launched_by_name(source: CudaSource, spelling: str) -> None:
        kernel = source[spelling]
        source._require_instance(kernel.name)
        found.by_name.setdefault(source, {})[spelling] = kernel.name
        add(source, kernel.name)

    recorder = emulation.CudaEmulator(
        launched, lambda source, name, value: None, lambda function: function, launched_by_name
    )
    planned = emulation.Settings(checks=False, gpu=gpu)
    with (
        emulate(checks=False),
        mock.patch.object(emulation, "cuda_emulator", return_value=recorder),
        emulation.entered(planned),
    ):
        for name in choices:
            with op.using(name):
                for values, needs in calls:
                    tensors = op.signature.flatten(values)
                    if (size := size_in_bytes(tensors)) > MOST_BYTES:
                        shown = op.signature.shown(values)
                        found.note(f"launches of a call of {size >> 20} MiB are not recorded: {shown}")
                        continue
                    own = op.signature.unflatten(values, on_cpu(tensors))
                    for each in needs or [[]]:
                        _run(op, found, own, each)


def _run(op: Op, found: Recording, values: Sequence[Any], needs: Sequence[bool]) -> None:
    tensors = op.signature.flatten(values)
    leaves = [
        tensor.detach().requires_grad_(bool(needs) and needs[index]) if tensor is not None else None
        for index, tensor in enumerate(tensors)
    ]
    try:
        op.prepare(*op.signature.unflatten(values, leaves))
    except Exception as error:  # what was launched before it is recorded
        found.note(f"{type(error).__name__}: {error}".splitlines()[0])


def _build(source: CudaSource, unit: str | None, name: str, target: str) -> Path:
    return source._build_for(name if unit else None, target).path
