"""What a package's library holds: the operators of its ops, and for each the kernels that C++ can launch.

Those are generated kernels, for the calls that samples and prebuild= make, and functions of extensions, with the
kernels of a CudaSource that these calls launch by name. Kernels that a Python function launches are not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from ...generate import emit_cpp, emit_cuda
from ...generate.generation import LoopGeneration
from ...generate.publish import program_numbers
from ...generate.source import Recorder, Run, Source
from ...generate.trace import compiled_in
from ...kernels import GeneratedKernel, NativeKernel
from ...kernels.cuda_source import CudaSource
from ...kernels.extension import ExtensionFunction
from ...launch.driver import largest_cluster
from ...operator.op import Op
from ...reference.signature import Signature
from ...runtime.operator import Operator
from ..gpus import recorded
from ..recording import Call, Recording, calls_of, calls_on_gpu, record_calls, record_names
from .keys import key_row

TYPES = (
    "Tensor", "Tensor?", "Tensor[]", "Tensor?[]", "SymInt", "SymInt?", "SymInt[]", "float", "float?", "float[]",
    "bool", "bool?", "bool[]", "str", "str?", "ScalarType", "ScalarType?", "Device", "Device?",
)  # fmt: skip
"""The types of arguments that torch's stable ABI passes, in the order of native/values.h's Value."""


@dataclass(frozen=True)
class GpuSource:
    source: Source
    tiles: tuple[int, ...]


@dataclass
class Program:
    """What runs one kind of call on one device. Kernels are by layout: one source for each level of processors, or one
    for every GPU."""

    device: str
    key: tuple[int, ...]
    numbers: Sequence[int]
    on_cpu: dict[bytes, dict[str, Source]] = field(default_factory=dict)
    on_gpu: dict[bytes, GpuSource] = field(default_factory=dict)


@dataclass(frozen=True)
class Native:
    """A function of an extension as an operator's kernel."""

    device: str
    function: ExtensionFunction
    positions: Sequence[int]
    contiguous: bool
    keeps_layout: bool


@dataclass
class Entry:
    """One operator of the library."""

    name: str
    signature: Signature
    statics: Sequence[bool]
    programs: dict[tuple[str, tuple[int, ...]], Program] = field(default_factory=dict)
    natives: list[Native] = field(default_factory=list)
    depends_on_default_dtype: bool = False

    @property
    def base(self) -> str:
        return self.name.partition("::")[2]

    @property
    def is_served(self) -> bool:
        return bool(self.programs or self.natives)


@dataclass
class Contents:
    """`combines`: the sources of the kernels that add partial sums, by dtype, and on GPUs by number of results."""

    entries: dict[str, Entry] = field(default_factory=dict)
    combines_on_cpu: dict[torch.dtype, dict[str, Source]] = field(default_factory=dict)
    combines_on_gpu: dict[tuple[torch.dtype, int], Source] = field(default_factory=dict)
    by_name: dict[CudaSource, dict[str, str]] = field(default_factory=dict)
    """The kernels that functions of extensions launch: the spelling that C++ uses, and the kernel's own."""
    notes: list[str] = field(default_factory=list)
    """What the library does not have, and why."""

    @property
    def served(self) -> dict[str, bool]:
        """For each operator, whether the library has a kernel for it."""
        return {name: entry.is_served for name, entry in self.entries.items()}

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def collect(ops: Sequence[Op], targets: Sequence[str]) -> Contents:
    """`targets`: GPU architectures; without any, nothing is collected for GPUs."""
    found = Contents()
    for op in ops:
        rows = op.is_generated and _generation(op).compiler.rows
        for operator in _public(op):
            statics = compiled_in(operator.signature, rows)
            found.entries[operator.name] = Entry(operator.name, operator.signature, statics)
            derived = operator is op._families.default.functional  # of an in-place op: the author has not written it
            _add_natives(found if not derived else replace(found, notes=[]), operator, targets)
        _add_launched(found, op, targets)
        if op.is_generated:
            _add_generated(found, op, targets)
    return found


def _public(op: Op) -> list[Operator]:
    """The operators that callers and autograd use."""
    family = op._families.default
    found = (family.forward, family.functional, family.out, family.backward, family.backward.backward)
    return [operator for operator in found if operator is not None]


def letters(signature: Signature) -> str | None:
    """A letter for each argument's type; None where torch's stable ABI cannot pass one."""
    types = [argument.type for argument in signature.arguments]
    return "".join(chr(ord("a") + TYPES.index(type)) for type in types) if set(types) <= set(TYPES) else None


# --- functions of extensions ------------------------------------------------------------------------------------------


def _add_natives(found: Contents, operator: Operator, targets: Sequence[str]) -> None:
    entry = found.entries[operator.name]
    for device, kernel in operator.kernels.items():
        if isinstance(kernel, GeneratedKernel):
            continue
        refusal = _refusal(operator, kernel, targets)
        if refusal is not None:
            found.note(f"{operator.name} on {device}: {refusal}")
            continue
        assert isinstance(kernel, NativeKernel) and isinstance(kernel.native, ExtensionFunction)
        positions = kernel.positions if kernel.positions is not None else range(len(operator.signature.arguments))
        contiguous, keeps = kernel.layout == "contiguous", operator.reference.keeps_layout
        entry.natives.append(Native(device, kernel.native, list(positions), contiguous, keeps))


def _add_launched(found: Contents, op: Op, targets: Sequence[str]) -> None:
    """The kernels of a CudaSource that the op's natives launch by name."""
    natives = [native for operator in _public(op) for native in found.entries[operator.name].natives]
    if not any(native.device == "cuda" and native.function.extension.kernels is not None for native in natives):
        return
    calls = Recording(op.name)
    recording = record_names(op, calls_on_gpu(op, calls), targets)
    for note in (*calls.notes, *recording.notes):
        found.note(f"{op.name}: {note}")
    for source, names in recording.by_name.items():
        found.by_name.setdefault(source, {}).update(names)


def _refusal(operator: Operator, kernel: object, targets: Sequence[str]) -> str | None:
    if not isinstance(kernel, NativeKernel) or not isinstance(kernel.native, ExtensionFunction):
        return "its kernel is a Python function, so the library does not have it"
    if letters(operator.signature) is None:
        return "torch's stable ABI cannot pass an argument of one of its types, so the library does not have its kernel"
    extension = kernel.native.extension
    if not extension.is_stable:
        return f'the extension {extension.name} is built with abi="torch", for one torch'
    if not targets and (kernel.device == "cuda" or extension.is_cuda_alone):
        return "built without CUDA"
    if kernel.device == "cuda" and (source := extension.kernels) is not None and source._current().found.constants:
        return f"{source.label} has __constant__ variables, which Python sets, so the library does not have its kernels"
    return None


# --- generated kernels ------------------------------------------------------------------------------------------------


def _add_generated(found: Contents, op: Op, targets: Sequence[str]) -> None:
    for capability in emit_cpp.CAPABILITIES:
        with emit_cpp.written_for(capability):
            recorder = _recorded(found, op, Recorder("cpu"), calls_of)
            for run in recorder.runs:
                if (program := _program(found, op, "cpu", run)) is not None:
                    for (_, layout), compiled in run.prepared.kernels.items():
                        program.on_cpu.setdefault(layout.encoded(), {})[capability] = compiled.kernel
            for (dtype, _), text in recorder.combines.items():
                source = Source(emit_cpp.COMBINE, text)
                found.combines_on_cpu.setdefault(dtype, {})[capability] = source
    _find_dependence(found, op)
    gpus = recorded(targets) if targets else []
    for multiprocessors, cluster in {(gpu.multiprocessors, largest_cluster(gpu.arch)) for gpu in gpus}:
        recorder = _recorded(found, op, Recorder("cuda", multiprocessors, cluster), calls_on_gpu)
        for run in recorder.runs:
            if (program := _program(found, op, "cuda", run)) is not None:
                for (_, layout), compiled in run.prepared.kernels.items():
                    program.on_gpu.setdefault(layout.encoded(), GpuSource(compiled.kernel, compiled.tiles))
        for (dtype, jobs), text in recorder.combines.items():
            found.combines_on_gpu[dtype, jobs] = Source(emit_cuda.COMBINE, text)


def _recorded(
    found: Contents, op: Op, recorder: Recorder, calls: Callable[[Op, Recording, bool], Iterable[Call]]
) -> Recorder:
    recording = Recording(op.name)
    for values, needs in calls(op, recording, True):
        record_calls(op, recording, recorder, values, needs, without_python=True)
    for note in recording.notes:
        found.note(f"{op.name}: {note}")
    return recorder


def _generation(op: Op) -> LoopGeneration:
    generation = op._families.generation
    assert isinstance(generation, LoopGeneration)
    return generation


def _program(found: Contents, op: Op, device: str, run: Run) -> Program | None:
    """The program of a run; None where another kernel serves the operator on this device, or none can."""
    operator = _generation(op).operators(op._families.default)[run.role]
    if not isinstance(operator.kernels.get(device), GeneratedKernel):
        return None
    entry = found.entries[operator.name]
    if letters(operator.signature) is None:
        found.note(f"{operator.name}: torch's stable ABI cannot pass an argument of one of its types")
        return None
    try:
        key = key_row(operator.signature.arguments, entry.statics, run.args)
    except TypeError as error:
        found.note(f"{operator.name}: {error}")
        return None
    if (device, key) not in entry.programs:
        numbers = program_numbers(run.role, _generation(op).compiler, run.prepared)
        entry.programs[device, key] = Program(device, key, numbers)
    return entry.programs[device, key]


def _find_dependence(found: Contents, op: Op) -> None:
    """Finds the operators whose results depend on the default dtype, as those of `integers * 0.5` do."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        recorder = _recorded(Contents(), op, Recorder("cpu"), calls_of)
    finally:
        torch.set_default_dtype(before)
    fresh = Contents(entries={name: replace(entry, programs={}) for name, entry in found.entries.items()})
    for run in recorder.runs:
        if (program := _program(fresh, op, "cpu", run)) is not None:
            for (_, layout), compiled in run.prepared.kernels.items():
                program.on_cpu.setdefault(layout.encoded(), {})[emit_cpp.capability()] = compiled.kernel
    for name, entry in fresh.entries.items():
        for place, program in entry.programs.items():
            known = found.entries[name].programs.get(place)
            if known is not None and _own_kernels(known) != _own_kernels(program):
                found.entries[name].depends_on_default_dtype = True


def _own_kernels(program: Program) -> dict[bytes, Source | None]:
    return {layout: sources.get(emit_cpp.capability()) for layout, sources in program.on_cpu.items()}
