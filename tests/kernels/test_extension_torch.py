"""Extensions on torch's C++ API: a Python module, operators of its own, and what is said of the wrong ABI."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith import errors, toolchain


@pytest.fixture(autouse=True)
def _needs_python_headers() -> None:
    try:
        toolchain.python_headers()
    except errors.PythonHeadersNotFoundError as error:
        pytest.skip(str(error))


ON_TORCH = """
#include <torch/extension.h>
#include <torch/library.h>

at::Tensor square(const at::Tensor& x) { return at::mul(x, x); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("square", &square, "x * x"); }
TORCH_LIBRARY(opsmith_tests_torch_abi, m) { m.def("square(Tensor x) -> Tensor", &square); }
"""
# Leaves out torch/all.h, with which the header takes forty seconds; a real extension may do so too.
LEAN = ["-DTORCH_INDUCTOR_CPP_WRAPPER", "-O0"]


def test_a_source_on_torchs_own_headers_is_a_module_and_a_library(tmp_path: Path) -> None:
    source = tmp_path / "on_torch.cpp"
    source.write_text(ON_TORCH)
    ext = opsmith.extension("on_torch", source, abi="torch", extra_cflags=LEAN)
    x = torch.randn(3, requires_grad=True)
    torch.testing.assert_close(ext.square(x), x * x)
    assert ext.square(x).grad_fn is not None and ext.square.__doc__.rstrip().endswith("x * x")
    assert torch.equal(torch.ops.opsmith_tests_torch_abi.square(x), x * x)
    assert ext.exports() == ["square"] and "square" in dir(ext)
    with pytest.raises(errors.UnknownFunctionError, match="exports no function 'cube'; it exports square"):
        _ = ext.cube
    needed = subprocess.run(["readelf", "-d", str(ext.build())], capture_output=True, text=True, check=True).stdout
    assert "libtorch_python.so" in needed


MODULE = """
#include <pybind11/pybind11.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("answer", [] { return 42; }); }
"""


def test_an_edited_module_is_loaded_beside_the_previous_one(tmp_path: Path) -> None:
    source = tmp_path / "module.cpp"
    source.write_text(MODULE)
    first = opsmith.extension("opsmith_tests_module", source, abi="torch", extra_cflags=["-O0"])
    assert first.answer() == 42
    source.write_text(MODULE.replace("42", "43"))
    second = opsmith.extension("opsmith_tests_module", source, abi="torch", extra_cflags=["-O0"], lazy=True)
    assert not second.built
    assert (first.answer(), second.answer()) == (42, 43)
    assert second.built


def test_torchs_own_headers_on_the_stable_abi_are_refused_with_the_remedy(tmp_path: Path) -> None:
    source = tmp_path / "on_torch.cpp"
    source.write_text(ON_TORCH)
    with pytest.raises(errors.ExtensionArgumentError, match=r"not part of torch's stable ABI.*abi=\"torch\"") as caught:
        opsmith.extension("on_stable", source)
    assert isinstance(caught.value.__cause__, errors.CompileError)


def test_missing_python_headers_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "module.cpp"
    source.write_text(MODULE)
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path))
    toolchain.forget()
    try:
        with pytest.raises(errors.PythonHeadersNotFoundError, match="apt-get install python3-dev"):
            opsmith.extension("headerless", source, abi="torch")
    finally:
        toolchain.forget()
