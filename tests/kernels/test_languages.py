"""One op in several languages: every named kernel of every shipped op, on the op's own samples, by the same check.

Ops and kernels are found by themselves: one more of either edits nothing here. Kernels in Triton and Numba run on any
machine; there the larger samples are left to a GPU, since an emulated block takes milliseconds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import opsmith
from opsmith import Op, errors
from opsmith.checks import compare
from opsmith.kernels import Kernel
from opsmith.kernels.languages import LANGUAGES
from opsmith.operator import describe

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
LARGEST_EMULATED = 4096
EMULATED = {language.name: language for language in LANGUAGES if language.implementation}


def named_kernels() -> Iterator[tuple[str, str, str]]:
    """(op, device, kernel name) of each."""
    for name in opsmith.ops.__all__:
        for device, kernels in getattr(opsmith.ops, name).kernels.items():
            yield from ((name, device, kernel) for kernel in kernels if kernel != "default")


NAMED = list(named_kernels())


def found(op_name: str, device: str, kernel: str) -> tuple[Op, Kernel]:
    op = getattr(opsmith.ops, op_name)
    return op, op.kernels[device][kernel]


def params(device: str, emulated: bool = False) -> list[Any]:
    """The named kernels of a device; of those that can be emulated, or all."""
    return [
        pytest.param(op, kernel, id=f"{op}-{kernel}")
        for op, on, kernel in NAMED
        if on == device and (not emulated or found(op, on, kernel)[1].language in EMULATED)
    ]


def differing(op: Op, device: str, dtype: torch.dtype, largest: int | None = None) -> list[str]:
    compared = []
    for sample in op.samples_for(device, dtype):
        tensors = [value for value in sample.args if isinstance(value, torch.Tensor)]
        if largest is None or max(tensor.numel() for tensor in tensors) <= largest:
            compared += compare(op, sample)
    assert any("gradient" in each.what for each in compared)
    return [f"{each.what}: {each.message}" for each in compared if not each]


@contextlib.contextmanager
def calls_of(kernel: Kernel) -> Iterator[list[str]]:
    """The names of the functions in the kernel's own file that are called meanwhile."""
    called: list[str] = []
    module = kernel.author.module if hasattr(kernel.author, "module") else kernel.author.__module__  # type: ignore[union-attr]

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__") == module:
            called.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        yield called
    finally:
        sys.setprofile(None)


def test_an_op_is_shipped_in_each_language() -> None:
    languages = {found(*each)[1].language for each in NAMED}
    assert {"Triton", "Numba"} <= languages
    assert {"add_two": "numba", "scale_bias_relu": "triton"}.items() <= {op: kernel for op, _, kernel in NAMED}.items()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op_name", "kernel"), params("cuda", emulated=True))
def test_emulated_on_the_cpu_it_gives_the_references_numbers(op_name: str, kernel: str, dtype: torch.dtype) -> None:
    op, registered = found(op_name, "cuda", kernel)
    language = EMULATED[registered.language]
    if not all(map(importlib.util.find_spec, language.modules)):
        pytest.skip(f"{language.name} is not installed: pip install {language.package}")
    with opsmith.emulate(), op.using(kernel):
        assert differing(op, "cpu", dtype, LARGEST_EMULATED) == []


@pytest.mark.parametrize(("op_name", "kernel"), params("cuda", emulated=True))
def test_it_is_the_kernel_that_runs_inside_emulate_and_only_there(op_name: str, kernel: str) -> None:
    op, registered = found(op_name, "cuda", kernel)
    language = EMULATED[registered.language]
    if not all(map(importlib.util.find_spec, language.modules)):
        pytest.skip(f"{language.name} is not installed: pip install {language.package}")
    sample = op.samples_for("cpu", torch.float32)[0]
    with op.using(kernel), calls_of(registered) as outside:
        op(*sample.args, **sample.kwargs)
    with opsmith.emulate(), op.using(kernel), calls_of(registered) as inside:
        op(*sample.args, **sample.kwargs)
    assert "forward" not in outside and "forward" in inside


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op_name", "kernel"), params("cpu"))
def test_on_the_cpu_it_gives_the_references_numbers(op_name: str, kernel: str, dtype: torch.dtype) -> None:
    op, _ = found(op_name, "cpu", kernel)
    with op.using(kernel):
        assert differing(op, "cpu", dtype) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op_name", "kernel"), params("cuda"))
def test_on_a_gpu_it_gives_the_references_numbers(op_name: str, kernel: str, dtype: torch.dtype) -> None:
    op, _ = found(op_name, "cuda", kernel)
    try:
        with op.using(kernel):
            assert differing(op, "cuda", dtype) == []
    except errors.LanguageMissingError as error:
        pytest.skip(str(error))


@pytest.mark.gpu
@pytest.mark.parametrize(("op_name", "kernel"), params("cuda"))
def test_on_a_gpu_torch_compile_gives_the_same(op_name: str, kernel: str) -> None:
    op, _ = found(op_name, "cuda", kernel)
    sample = op.samples_for("cuda", torch.float32)[0]
    leaves = [v.clone().requires_grad_() if isinstance(v, torch.Tensor) else v for v in sample.args]
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    try:
        with op.using(kernel):
            eager = op(*leaves, **sample.kwargs)
            expected = torch.autograd.grad(eager.sum(), inputs)
            compiled = torch.compile(op, fullgraph=True)(*leaves, **sample.kwargs)
            gradients = torch.autograd.grad(compiled.sum(), inputs)
    except errors.LanguageMissingError as error:
        pytest.skip(str(error))
    torch.testing.assert_close(compiled, eager)
    torch.testing.assert_close(gradients, expected)


def test_the_kernels_of_an_op_are_shown_side_by_side() -> None:
    shown = {part.name: part.detail for part in describe.parts(opsmith.ops.scale_bias_relu)}
    for direction in ("forward", "backward"):
        line = shown[f"cuda {direction}"]
        assert "CUDA, from the reference" in line
        assert f"triton: Triton {direction} (triton_kernel.py:" in line
        assert "launched from Python (by using('triton'))" in line
    assert "numba: Numba forward (numba_kernel.py:" in repr(opsmith.ops.add_two)


@pytest.mark.parametrize("choice", ["x", "bias"])
def test_the_triton_backward_computes_what_is_asked_for(choice: str) -> None:
    op = opsmith.ops.scale_bias_relu
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install triton")
    x, bias = torch.randn(300, 24), torch.randn(24)
    {"x": x, "bias": bias}[choice].requires_grad_()
    expected = torch.autograd.grad(torch.relu(x * 0.3 + bias).sum(), {"x": x, "bias": bias}[choice])
    with opsmith.emulate(), op.using("triton"):
        given = torch.autograd.grad(op(x, bias, 0.3).sum(), {"x": x, "bias": bias}[choice])
    torch.testing.assert_close(given, expected)


@pytest.mark.parametrize("scale", [0.1, 1e-30, 1e300, float("inf"), float("nan")])
def test_the_triton_kernel_keeps_a_64_bit_scale(scale: float) -> None:
    """Triton passes a float in 32 bits."""
    op = opsmith.ops.scale_bias_relu
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install triton")
    x, bias = torch.randn(5, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    with opsmith.emulate(), op.using("triton"):
        assert torch.equal(op(x, bias, scale).nan_to_num(), torch.relu(x * scale + bias).nan_to_num())


@pytest.mark.parametrize("arch", [75, 80, 86, 89, 90, 100, 120])
def test_the_triton_kernels_compile_for_every_gpu_with_none_present(arch: int) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install triton")
    from triton import compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from opsmith.ops.scale_bias_relu import triton_kernel

    tile = {"ROWS": 32, "COLUMNS": 64}
    constants = {
        "_forward": tile,
        "_backward": {**tile, "NEEDS_X": True, "NEEDS_BIAS": True},
        "_combine": {"CHUNKS": 128, "COLUMNS": 16},
    }
    numbers = dict.fromkeys(("rows", "columns", "rows_in_chunk", "chunks"), "i32")
    floats = dict.fromkeys(("high", "middle", "low"), "fp32")
    for dtype, (name, fixed) in [(d, each) for d in ("fp32", "fp64", "fp16", "bf16") for each in constants.items()]:
        pointers = dict.fromkeys(("x", "bias", "out", "grad", "grad_x", "grad_bias"), f"*{dtype}")
        partial = {"partial": "*fp64" if dtype == "fp64" else "*fp32"}
        types = {**pointers, **partial, **numbers, **floats, **dict.fromkeys(fixed, "constexpr")}
        kernel = getattr(triton_kernel, name)
        source = ASTSource(fn=kernel, signature={n: types[n] for n in kernel.arg_names}, constexprs=fixed)
        options = triton_kernel.EXACT if name != "_combine" else {}
        text = compile(source, target=GPUTarget("cuda", arch, 32), options=options).asm["ptx"]
        assert not re.search(r"\b(atom|red)\.", text), "no atomics: the sum of the bias's gradient has one order"
        assert "fma" not in text, "x * scale + bias rounds twice, as the reference does"
