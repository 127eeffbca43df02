"""Sources in a zip file, as in a package that Python imports from one, are compiled like any other."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith import errors
from opsmith.toolchain import zipped

PACKAGE = """
from pathlib import Path
import opsmith

cu = opsmith.cuda_source(Path(__file__).with_name("kernel.cu"))
beside = opsmith.cuda_source("kernel.cu")
ext = opsmith.extension("zipped_ext", Path(__file__).parent / "tripled.cpp", lazy=True)
"""
KERNEL = '#include "inner/factor.h"\n__global__ void scale(float* x) { x[threadIdx.x] *= FACTOR; }\n'
TRIPLED = """
#include <opsmith/kernel.h>
#include "inner/factor.h"
torch::stable::Tensor triple(const torch::stable::Tensor& x) {
  torch::stable::Tensor y = opsmith::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    static_cast<float*>(y.mutable_data_ptr())[i] = FACTOR * static_cast<const float*>(x.const_data_ptr())[i];
  }
  return y;
}
OPSMITH_EXPORT(tripled, triple)
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "packages.zip"
    with zipfile.ZipFile(path, "w") as held:
        held.writestr("ziplib/__init__.py", PACKAGE)
        held.writestr("ziplib/kernel.cu", KERNEL)
        held.writestr("ziplib/tripled.cpp", TRIPLED)
        held.writestr("ziplib/inner/factor.h", "#define FACTOR 3\n")
        held.writestr("other/large.bin", b"x" * 1000)
    return path


def test_kernels_of_a_package_in_a_zip_run(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])
    ziplib = importlib.import_module("ziplib")
    try:
        x = torch.ones(4)
        for source in (ziplib.cu, ziplib.beside):
            with opsmith.emulate():
                source.scale[1, 4](x)
        assert x.tolist() == [9.0] * 4

        @opsmith.op("zipped::tripled")
        def tripled(x: torch.Tensor) -> torch.Tensor:
            return 3 * x

        tripled.register_kernel("cpu", ziplib.ext.tripled)
        assert tripled(torch.ones(2)).tolist() == [3.0, 3.0]
        assert ziplib.ext.built
    finally:
        del sys.modules["ziplib"]


def test_only_the_sources_directory_is_unpacked_and_once(archive: Path) -> None:
    found = zipped.as_file(archive / "ziplib" / "kernel.cu")
    assert found is not None
    assert (found.parent / "inner" / "factor.h").read_text() == "#define FACTOR 3\n"
    assert not (found.parent / "large.bin").exists()
    assert zipped.as_file(archive / "ziplib" / "kernel.cu") == found


def test_what_is_not_in_a_zip_is_left_alone(archive: Path, tmp_path: Path) -> None:
    assert zipped.as_file(archive / "ziplib" / "missing.cu") is None
    assert zipped.as_file(tmp_path / "no.zip" / "kernel.cu") is None
    (tmp_path / "plain.txt").write_text("no zip")
    assert zipped.as_file(tmp_path / "plain.txt" / "kernel.cu") is None
    with pytest.raises(errors.SourceNotFoundError):
        opsmith.cuda_source(archive / "ziplib" / "missing.cu")
