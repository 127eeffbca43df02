"""What is built for an op: the kernels of its samples and of `prebuild=`, for each processor and GPU."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, runtime
from opsmith.generate import devices, emit_cpp, emit_cuda
from opsmith.shipping.recording import record_op

EXAMPLE = Path(__file__).parents[2] / "examples" / "10_prebuild.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prebuild_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(op: Op) -> dict[str, int]:
    """The number of kernels for each place."""
    places = [wanted.place for wanted in record_op(op, ["sm_90", "compute_90"]).wanted]
    return {place: places.count(place) for place in places}


def test_prebuild_names_calls_besides_the_samples(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    op = example.scaled_relu
    both = built(op)
    assert both.keys() == {"AVX512", "AVX2", "DEFAULT", "sm_90", "compute_90"}
    assert both["sm_90"] == both["compute_90"]
    monkeypatch.setattr(op, "prebuild", None)
    samples_alone = built(op)
    assert all(0 < samples_alone[place] < both[place] for place in both)


def test_an_op_without_samples_says_so(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example.scaled_relu, "prebuild", None)
    monkeypatch.setattr(example.scaled_relu, "samples", None)
    found = record_op(example.scaled_relu, [])
    assert not found.wanted
    assert found.notes == ["it has no samples: register_samples says which calls to build for"]


def residual(x: Tensor, scale: Tensor, other: Tensor) -> Tensor:
    return x * scale + other


def several(x: Tensor, y: Tensor, k: int = 2) -> tuple[Tensor, Tensor]:
    return x * y + k, torch.where(x > y, x, y)


def mixed(x: Tensor, bits: Tensor, flip: bool = False) -> Tensor:
    return torch.where(bits > 0, x, 0.0 if flip else -x)


def strangers(fresh: Callable[[str], str]) -> Iterator[Op]:
    def declared(function: Callable[..., Any], *samples: Callable[[], tuple[Any, ...]]) -> Op:
        op = opsmith.pointwise(fresh(function.__name__))(function)
        op.register_samples(
            lambda device, dtype: (opsmith.Sample(tuple(_as(dtype, each) for each in s())) for s in samples)
        )
        return op

    rows = torch.randn
    yield declared(residual, lambda: (rows(6, 5), rows(5), rows(6, 5)), lambda: (rows(3, 1, 4), rows(2, 1), rows(4)))
    yield declared(several, lambda: (rows(7), rows(7)), lambda: (rows(4, 6).t(), rows(6, 1), 3))
    yield declared(
        mixed, lambda: (rows(5, 4)[:, ::2], torch.ones(5, 1, dtype=torch.int64)), lambda: (rows(()), rows(()))
    )


def _as(dtype: torch.dtype, value: Any) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def test_what_calls_compile_has_been_recorded(fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of samples, forward and backward, need no kernel that is not built. Kernels that do nothing stand in."""
    nothing = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(lambda begin, end, p: None)
    compiled: list[str] = []

    def instead(text: str, entry: str) -> int:
        compiled.append(text)
        return ctypes.cast(nothing, ctypes.c_void_p).value or 0

    monkeypatch.setattr(devices, "_cpu_function", instead)
    monkeypatch.setattr(devices, "cpu_combine", lambda dtype: instead(emit_cpp.combine_text(dtype), emit_cpp.COMBINE))
    monkeypatch.setattr(emit_cpp, "CAPABILITIES", (emit_cpp.capability(),))
    with runtime.forced("python"):  # C++ would keep the kernels that do nothing
        own = list(strangers(fresh))
        for shipped in (getattr(opsmith.ops, name) for name in opsmith.ops.names()):
            if shipped.is_generated and not shipped.signature.mutated:
                declare = (
                    opsmith.pointwise if shipped._families.default.forward.reference.elementwise else opsmith.rowwise
                )
                own.append(declare(fresh(shipped.__name__))(shipped.reference))
                own[-1].samples = shipped.samples
    for op in own:
        recorded = {wanted.identity for wanted in record_op(op, []).wanted}
        for dtype in (torch.float32, torch.bfloat16):
            for sample in op.samples_for("cpu", dtype):
                _call(op, sample)
        missing = [text.splitlines()[0] for text in compiled if not any(text in each for each in recorded)]
        assert compiled and not missing, (op.name, missing)
        compiled.clear()


def _call(op: Op, sample: opsmith.Sample) -> None:
    values = op.signature.bind_call(sample.args, dict(sample.kwargs))
    leaves = [
        None if t is None else t.detach().requires_grad_(t.is_floating_point()) for t in op.signature.flatten(values)
    ]
    returned = op(*op.signature.unflatten(values, leaves))
    targets = [each for each in (returned if isinstance(returned, tuple) else [returned]) if each.requires_grad]
    torch.autograd.backward(targets, [torch.ones_like(each) for each in targets])


def test_an_empty_sample_needs_no_kernel_and_no_note(fresh: Callable[[str], str]) -> None:
    op = opsmith.rowwise(fresh("total"))(total)
    op.register_samples(lambda device, dtype: [opsmith.Sample((torch.ones(shape, dtype=dtype),)) for shape in SIZES])
    found = record_op(op, [])
    assert found.wanted and not found.notes


SIZES = [(0, 8), (4, 8), (4, 0)]


def total(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


def test_kernels_that_cpp_launches_by_name_are_recorded_for_each_gpu() -> None:
    spec = importlib.util.spec_from_file_location("launch_example", EXAMPLE.with_name("11_launch_by_name.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = record_op(module.unit_rows, ["sm_90", "compute_90"])
    label = "normalize<float> of 11_launch_by_name.cu"
    assert [(wanted.place, wanted.label) for wanted in found.wanted] == [("sm_90", label), ("compute_90", label)]
    assert not module.ext.built, "only for the emulator"


@pytest.mark.parametrize("targets", [[], ["sm_80", "compute_90"]], ids=["CPUs", "GPUs"])
def test_what_combines_partial_sums_is_recorded_for_samples_of_any_size(
    targets: list[str], fresh: Callable[[str], str]
) -> None:
    """A small sample sums directly, and a user's larger call of the same kind does not."""

    @opsmith.pointwise(fresh("shifted"))
    def shifted(x: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
        return torch.tanh(x * scale + bias)

    shapes = ((2, 3, 4, 4), (3, 1, 1), (3, 1, 1))
    shifted.register_samples(
        lambda device, dtype: [opsmith.Sample(tuple(torch.ones(shape, dtype=dtype) for shape in shapes))]
    )
    labels = {emit_cpp.COMBINE, emit_cuda.COMBINE}
    places = [each.place for each in record_op(shifted, targets).wanted if each.label in labels]
    count = {place: places.count(place) for place in places}
    # One for each dtype: on a GPU for two sums at once, on a CPU for one.
    assert count == {**dict.fromkeys(emit_cpp.CAPABILITIES, 4), **dict.fromkeys(targets, 4)}


def test_larger_samples_for_a_gpu_are_recorded_for_gpus_alone(fresh: Callable[[str], str]) -> None:
    """Neither the memory nor the time of a GPU's sizes is used: TiB here."""
    asked: list[object] = []

    @opsmith.rowwise(fresh("centered"))
    def centered(x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True)

    @centered.register_samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
        asked.append(device)
        rows, columns = (2**20, 2**18) if device.type == "cuda" else (4, 8)
        generator = torch.Generator(device).manual_seed(0)
        x = torch.randn(rows, columns, generator=generator, device=device, dtype=dtype)
        yield opsmith.Sample(((x - x.amin()).to(device),))

    small = record_op(centered, [], ["DEFAULT"])
    assert set(map(str, asked)) == {"cpu"}
    both = record_op(centered, ["sm_90"], ["DEFAULT"])
    assert torch.device("cuda") in asked and not both.notes
    assert {each for each in both.wanted if each.place == "DEFAULT"} == set(small.wanted)
    labels = [each.label for each in both.wanted if each.place == "sm_90"]
    asked.clear()
    centered.samples = lambda device, dtype: [opsmith.Sample((torch.ones(4, 8, dtype=dtype),))]
    of_small = [each.label for each in record_op(centered, ["sm_90"], []).wanted]
    assert len(labels) > len(of_small) > 0, "rows of this length have kernels of their own"


def test_launches_of_larger_samples_for_a_gpu_are_recorded(fresh: Callable[[str], str]) -> None:
    source = opsmith.cuda_source("""
template <int N> __global__ void doubled(const float* x, float* y, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
""")

    @opsmith.op(fresh("doubled"))
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    @doubled.register_kernel("cuda")
    def _(x: Tensor) -> Tensor:
        if x.dtype is not torch.float32:
            return NotImplemented
        y, n = torch.empty_like(x), x.numel()
        source["doubled<8>" if n > 1000 else "doubled<1>"][-(-n // 128), 128](x, y, n)
        return y

    @doubled.register_samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
        if dtype is torch.float32:
            sizes = (4096, 2**40) if device.type == "cuda" else (4,)
            yield from (opsmith.Sample((torch.ones(size, device=device, dtype=dtype),)) for size in sizes)

    found = record_op(doubled, ["sm_90"])
    assert {each.label.partition(" ")[0] for each in found.wanted} == {"doubled<1>", "doubled<8>"}
    assert len(found.notes) == 1 and "x float32 [1099511627776]" in found.notes[0], found.notes


def test_samples_for_a_gpu_that_read_values_are_noted(fresh: Callable[[str], str]) -> None:
    @opsmith.pointwise(fresh("scaled"))
    def scaled(x: Tensor, by: float = 1.0) -> Tensor:
        return x * by

    @scaled.register_samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
        x = torch.ones(4, device=device, dtype=dtype)
        yield opsmith.Sample((x, x.sum().item()))

    found = record_op(scaled, ["sm_90"])
    assert {each.place for each in found.wanted} == {*emit_cpp.CAPABILITIES, "sm_90"}, "from the samples for a CPU"
    assert len(found.notes) == 4
    assert found.notes[0].startswith("no samples for GPUs in float32, which are made without values: ")
