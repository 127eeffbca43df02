"""Functions of an extension as kernels: results, gradients, lazily built ones, names that are not there."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fresh_process
import native_kernels
import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, Sample, errors, toolchain
from opsmith.checks import compare_samples
from opsmith.kernels.extension import Extension

Fresh = Callable[[str], str]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "square.cpp"
    path.write_text(native_kernels.SOURCE)
    return path


def square(x: Tensor) -> Tensor:
    return x * x


def with_kernels(name: str, ext: Extension) -> Op:
    op = opsmith.op(name)(square)
    op.register_kernel("cpu", ext.square_forward)
    op.register_backward("cpu", ext.square_backward_kernel, saves=("x",))

    @op.register_samples
    def _(device: Any, dtype: torch.dtype) -> Any:
        yield Sample(args=(torch.randn(5, 3, device=device, dtype=dtype),))
        yield Sample(args=(torch.randn(9, 9, device=device, dtype=dtype)[1::2, ::3],), name="sliced")
        yield Sample(args=(torch.randn(0, 3, device=device, dtype=dtype),), name="empty")

    return op


def python_calls(op: Op, x: Tensor) -> list[str]:
    """The files of opsmith in which a call of the op runs Python, except the op's own wrapper."""
    seen: list[str] = []
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        op(x)
    finally:
        sys.setprofile(None)
    return [name for name in seen if "opsmith" in name and not name.endswith(("op.py", "test_extension.py"))]


@pytest.mark.parametrize("lazy", [False, True], ids=["built", "lazy"])
def test_its_functions_are_kernels_entered_from_the_dispatcher(
    fresh: Fresh, source: Path, tier: str, lazy: bool
) -> None:
    ext = opsmith.extension("square_ext", source, lazy=lazy)
    assert ext.built is not lazy
    op = with_kernels(fresh("square"), ext)
    assert ext.built is not lazy, "registering a kernel builds nothing"
    for dtype in (torch.float32, torch.float64):
        for _ in range(2):  # The first call is checked in Python; the next ones are entered from C++.
            assert all(compare_samples(op, dtype=dtype))
    assert ext.built and op.kernels["cpu"]["default"].checked and op._families.default.backward.kernels["cpu"].checked
    assert (python_calls(op, torch.randn(4, requires_grad=True)) == []) is (tier == "native")


def test_a_lazy_kernel_is_complete(fresh: Fresh, source: Path, tier: str) -> None:
    op = with_kernels(fresh("complete"), opsmith.extension("complete_ext", source, lazy=True))
    compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], 2 * x.detach())
    assert torch.autograd.gradcheck(op, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(op, (x,))
    torch.testing.assert_close(torch.vmap(op)(torch.ones(3, 4)), torch.ones(3, 4))


def test_a_lazy_kernel_in_place_and_one_among_several(fresh: Fresh, source: Path, tier: str) -> None:
    def square_(x: Tensor) -> None:
        x.copy_(x.clone() ** 2)

    ext = opsmith.extension("inplace_ext", source, lazy=True)
    op = opsmith.op(fresh("square_"), mutates_args=("x",))(square_)
    op.register_kernel("cpu", ext.square_in_place_kernel, name="cpp")
    op.register_kernel("cpu", lambda x: x.mul_(x) is None or None, name="python")
    for _ in range(2):
        with op.using("cpp"):
            assert op(torch.full((3,), 3.0)).tolist() == [9.0] * 3
        with op.using("python"):
            assert op(torch.full((3,), 3.0)).tolist() == [9.0] * 3
    leaf = torch.randn(3, dtype=torch.float64, requires_grad=True)
    with op.using("cpp"):
        assert torch.autograd.gradcheck(lambda value: op(value.clone()), (leaf,))


def test_prepare_builds(fresh: Fresh, source: Path) -> None:
    ext = opsmith.extension("prepared_ext", source, lazy=True)
    op = with_kernels(fresh("prepared"), ext)
    op.prepare(torch.randn(3, requires_grad=True))
    assert ext.built and op._families.default.backward.kernels["cpu"].operator is not None


def test_threads_that_call_first_build_once(fresh: Fresh, source: Path, tier: str) -> None:
    op = with_kernels(fresh("threads"), opsmith.extension("threads_ext", source, lazy=True))
    results: list[Tensor] = []
    barrier = threading.Barrier(4)

    def first_call() -> None:
        barrier.wait()
        results.append(op(torch.full((3,), 3.0)))

    threads = [threading.Thread(target=first_call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.tolist() for result in results] == [[9.0] * 3] * 4


def test_a_lazy_build_that_fails_fails_the_call(fresh: Fresh, tmp_path: Path, tier: str) -> None:
    path = tmp_path / "wrong.cpp"
    path.write_text("int wrong() { return undeclared; }\n")
    op = with_kernels(fresh("wrong"), opsmith.extension("wrong_ext", path, lazy=True))
    for _ in range(2):
        with pytest.raises(errors.CompileError, match=rf"{path}:1:22: error: 'undeclared' was not declared"):
            op(torch.ones(3))
    path.write_text(native_kernels.SOURCE)  # fixed, it works without being declared again
    assert op(torch.full((3,), 3.0)).tolist() == [9.0] * 3


def test_what_it_exports_is_listed_built_or_not(source: Path) -> None:
    names = ["raises_kernel", "square_backward_kernel", "square_forward", "square_in_place_kernel"]
    names += ["weighted_rows_forward", "wrong_shape_kernel"]
    lazy = opsmith.extension("listed_lazy", source, lazy=True)
    ext = opsmith.extension("listed", source)
    for each in (lazy, ext):
        assert each.exports() == names and set(names) <= set(dir(each))
        assert repr(each) == f"<extension {each.name} of square.cpp: {', '.join(names)}>"
    assert not lazy.built
    assert str(lazy.square_forward) == "C++ square_forward (extension listed_lazy, built at the first call)"
    assert str(ext.square_forward) == "C++ square_forward (extension listed)"


def test_a_name_that_is_not_exported_is_reported_with_those_that_are(fresh: Fresh, source: Path) -> None:
    words = "exports no function 'squared'; it exports raises_kernel, .*weighted_rows_forward(.|\n)*OPSMITH_EXPORT"
    ext = opsmith.extension("names", source)
    with pytest.raises(errors.UnknownFunctionError, match=words):
        _ = ext.squared
    assert not hasattr(ext, "squared") and not hasattr(ext, "__wrapped__")
    lazy = opsmith.extension("names_lazy", source, lazy=True)
    op = opsmith.op(fresh("names"))(square)
    op.register_kernel("cpu", lazy.squared)
    with pytest.raises(errors.UnknownFunctionError, match=words):
        op(torch.ones(3))


def test_an_edited_extension_replaces_the_kernel_and_leaves_the_previous_one_alone(fresh: Fresh, source: Path) -> None:
    first = opsmith.extension("edited_ext", source)
    op = with_kernels(fresh("edited"), first)
    former = with_kernels(fresh("former"), first)
    source.write_text(source.read_text().replace("out[i] = in[i] * in[i];", "out[i] = 10 * in[i] * in[i];"))
    op.register_kernel("cpu", opsmith.extension("edited_ext", source).square_forward)
    assert op(torch.full((2,), 3.0)).tolist() == [90.0, 90.0]
    assert former(torch.full((2,), 3.0)).tolist() == [9.0, 9.0]


def test_sources_of_several_files_are_one_library(fresh: Fresh, tmp_path: Path) -> None:
    (tmp_path / "four.h").write_text("#pragma once\nvoid four(float* out, long count);\n")
    (tmp_path / "body.cpp").write_text(
        '#include "four.h"\nvoid four(float* out, long n) { while (n > 0) out[--n] = 4; }\n'
    )
    (tmp_path / "door.cpp").write_text("""
#include <opsmith/kernel.h>
#include "four.h"
opsmith::Tensor filled(opsmith::Tensor x) {
  opsmith::Tensor out = opsmith::empty_like(x);
  four(opsmith::data<float>(out), x.numel());
  return out;
}
OPSMITH_EXPORT(four_forward, filled)
""")
    op = opsmith.op(fresh("several"))(square)
    op.register_kernel(
        "cpu", opsmith.extension("several_ext", [tmp_path / "body.cpp", tmp_path / "door.cpp"]).four_forward
    )
    assert op(torch.ones(2)).tolist() == [4.0, 4.0]


def test_one_binary_serves_every_torch_and_every_python(source: Path) -> None:
    """It asks for nothing but torch's C shim: no function of Python's, none of torch's C++ API."""
    path = opsmith.extension("portable", source).build()
    undefined = subprocess.run(["nm", "-D", "-u", str(path)], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in undefined.splitlines()]
    assert any(name.startswith("aoti_torch_") for name in names)
    assert [name for name in names if name.startswith(("Py", "_Py"))] == []
    assert [name for name in names if "c10" in name or "2at" in name or "5torch" in name] == []
    needed = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    assert "python" not in needed and "RUNPATH" not in needed and "RPATH" not in needed
    assert [name for name in toolchain.defined_symbols(path) if "opsmith" in name and not name.startswith("_Z")] == [
        *(f"opsmith_export_{name}" for name in opsmith.extension("portable", source).exports()),
        "opsmith_set_host",
    ]


def test_it_is_imported_when_it_is_first_asked_for() -> None:
    code = "import sys, opsmith; assert 'torch' not in sys.modules; assert callable(opsmith.extension)"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- elementwise_mult, whose kernel 'extension' is one


def test_elementwise_mult_in_cpp_is_elementwise_mult() -> None:
    op = opsmith.ops.elementwise_mult
    with op.using("extension"):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            assert [str(each) for each in compare_samples(op, dtype=dtype) if not each] == []
        x = torch.randn(4, 1, 3, dtype=torch.float64, requires_grad=True)
        y = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(op, (x, y))
        assert torch.autograd.gradgradcheck(op, (x, y))
        number = torch.randn((), dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(op, (x, number))
    kernels = op._families.named["extension"]
    assert kernels.forward.kernels["cpu"].checked and kernels.backward.kernels["cpu"].checked


def test_elementwise_mult_in_cpp_keeps_a_dense_layout(tier: str) -> None:
    op = opsmith.ops.elementwise_mult
    a, b = (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_() for _ in range(2))
    for _ in range(2):
        with op.using("extension"):
            result = op(a, b)
        assert result.stride() == a.stride()
        torch.testing.assert_close(result, a * b)
        gradients = torch.autograd.grad(result.sum(), (a, b))
        assert [gradient.stride() for gradient in gradients] == [a.stride(), b.stride()]


def test_elementwise_mult_in_cpp_raises_an_error_for_unsupported_arguments() -> None:
    op = opsmith.ops.elementwise_mult
    with op.using("extension"):
        with pytest.raises(RuntimeError, match="a is of int64; this kernel takes float32, float64, float16, bfloat16"):
            op(torch.arange(3), torch.arange(3))
        with pytest.raises(RuntimeError, match="b is of float64 and a of float32; this kernel takes two alike"):
            op(torch.ones(3), torch.ones(3).double())
        with pytest.raises(RuntimeError, match=r"a \[3\] and b \[4\] do not broadcast"):
            op(torch.ones(3), torch.ones(4))
    assert op(torch.arange(3), torch.arange(3)).tolist() == [0, 1, 4]


def test_declaring_elementwise_mult_compiles_nothing() -> None:
    code = """
import torch, opsmith
from opsmith.kernels import extension
op = opsmith.ops.elementwise_mult
op(torch.ones(3, requires_grad=True), torch.ones(3)).sum().backward()
assert [ext.built for ext in extension.registry.values()] == [False, False]
assert "extension" in op.kernels["cpu"] and "extension" in op.kernels["cuda"]
"""
    fresh_process.run(["-c", code], check=True)


# --- results of a kernel that is given contiguous copies


@pytest.mark.parametrize("native", [False, True], ids=["python", "cpp"])
def test_a_contiguous_kernel_of_a_pointwise_op_keeps_its_layout(
    fresh: Fresh, source: Path, tier: str, native: bool
) -> None:
    op = opsmith.pointwise(fresh("dense"))(square)
    op.register_kernel("cpu", opsmith.extension("dense_ext", source).square_forward if native else lambda x: x * x)
    x = torch.randn(3, 4).t()
    with torch._subclasses.FakeTensorMode() as mode:
        expected = op(mode.from_tensor(x)).stride()
    for _ in range(2):
        assert op(x).stride() == expected == (1, 4)
        torch.testing.assert_close(op(x), x * x)


MISTYPED = """
#include <opsmith/kernel.h>
#include <optional>
#include <string>
using opsmith::Tensor;
namespace {
Tensor right(Tensor x, double scale) { return opsmith::empty_like(x); }
Tensor by_reference(const Tensor& x, const double& scale) { return opsmith::empty_like(x); }
Tensor whole(Tensor x, int64_t scale) { return opsmith::empty_like(x); }
Tensor swapped(double scale, Tensor x) { return opsmith::empty_like(x); }
Tensor optional(std::optional<Tensor> x, double scale) { return opsmith::empty_like(*x); }
Tensor text(Tensor x, std::string scale) { return opsmith::empty_like(x); }
int64_t number(Tensor x, double scale) { return 1; }
}
OPSMITH_EXPORT(export_right, right)
OPSMITH_EXPORT(export_by_reference, by_reference)
OPSMITH_EXPORT(export_whole, whole)
OPSMITH_EXPORT(export_swapped, swapped)
OPSMITH_EXPORT(export_optional, optional)
OPSMITH_EXPORT(export_text, text)
OPSMITH_EXPORT(export_number, number)
"""


def test_a_function_of_other_types_than_the_op_is_refused_before_it_is_called(fresh: Fresh, tmp_path: Path) -> None:
    """torch would hand a float's bits over as an integer, or a number as a tensor, and crash."""
    path = tmp_path / "mistyped.cpp"
    path.write_text(MISTYPED)
    ext = opsmith.extension("mistyped", path)

    @opsmith.op(fresh("scaled"))
    def scaled(x: Tensor, scale: float) -> Tensor:
        return x * scale

    for name in ("whole", "swapped", "optional", "text", "number"):
        with pytest.raises(errors.KernelSignatureError, match=r"the op calls \(Tensor, float\) -> Tensor"):
            scaled.register_kernel("cpu", getattr(ext, f"export_{name}"))
    scaled.register_kernel("cpu", ext.export_right)
    scaled.register_kernel("cpu", ext.export_by_reference)
