"""A package with an op of each kind that can be built ahead of time, in a directory of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import opsmith

SOURCES = Path(opsmith.__file__).parents[1]
OPS = '''
from pathlib import Path

import torch
from torch import Tensor

import opsmith


@opsmith.pointwise("{name}::bent")
def bent(x: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(x * 0.5 + bias) - {number}


@bent.register_samples
def _(device, dtype):
    if dtype is torch.float16:
        raise TypeError("no float16 here")
    x, bias = torch.ones(4, 8, device=device, dtype=dtype), torch.ones(8, device=device, dtype=dtype)
    yield opsmith.Sample((x, bias), name="4x8")


cu = opsmith.cuda_source("""
template <typename T> __global__ void twice(const T* x, T* y, int n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i] + T({number}) - T({number});
}}
""")


@opsmith.op("{name}::twice")
def twice(x: Tensor) -> Tensor:
    return x + x


@twice.register_kernel("cuda")
def _(x):
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    y, n = torch.empty_like(x), x.numel()
    blocks = min(-(-n // 128), 8 * opsmith.gpu_of(x).multiprocessors)
    cu["twice<float>" if x.dtype is torch.float32 else "twice<double>"][blocks, 128](x, y, n)
    return y


@twice.register_samples
def _(device, dtype):
    yield opsmith.Sample((torch.ones(64, device=device, dtype=dtype),))


ext = opsmith.extension("{name}_ext", Path(__file__).parent / "negated.cpp", extra_cflags=["-march=native"], lazy=True)


@opsmith.op("{name}::negated")
def negated(x: Tensor) -> Tensor:
    return -x


negated.register_kernel("cpu", ext.negated)
'''
NEGATED = """
#include <opsmith/kernel.h>

torch::stable::Tensor negate_all(const torch::stable::Tensor& x) {{
  // {number}
  torch::stable::Tensor y = opsmith::empty_like(x);
  const float* from = static_cast<const float*>(x.const_data_ptr());
  float* to = static_cast<float*>(y.mutable_data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = -from[i];
  return y;
}}
OPSMITH_EXPORT(negated, negate_all)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package's directory. Its kernels are in no cache: they hold a number of their own."""
    return _written(tmp_path)


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    package = _written(tmp_path_factory.mktemp("built"))
    return package, build(package, "--no-cuda").stderr


@pytest.fixture
def built(built_once: tuple[Path, str], tmp_path: Path) -> Path:
    """A package that has been built for processors."""
    copy = tmp_path / "project"
    shutil.copytree(built_once[0].parents[1], copy)
    return copy / "src" / "aheadlib"


def _written(directory: Path) -> Path:
    number = abs(hash(str(directory))) % 10**6
    package = directory / "project" / "src" / "aheadlib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import ops\n")
    (package / "ops.py").write_text(OPS.format(name="aheadlib", number=number))
    (package / "negated.cpp").write_text(NEGATED.format(number=number))
    return package


def build(package: Path, *arguments: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
    """`opsmith build` in the project's directory."""
    done = subprocess.run(
        [sys.executable, "-m", "opsmith.cli", "build", *arguments],
        cwd=package.parents[1],
        env={**os.environ, "PYTHONPATH": str(SOURCES), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done


@pytest.fixture(scope="session")
def planned_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with opsmith's launch planner and nothing else, as opsmith's own wheel brings it."""
    cache = tmp_path_factory.mktemp("planned") / "cache"
    script = "import torch, opsmith; opsmith.ops.square(torch.ones(2))"
    _python(script, cache, OPSMITH_RUNTIME="python")
    for artifact in (cache / "artifacts").iterdir():
        if not any("planner" in each.name for each in artifact.iterdir()):
            for each in artifact.iterdir():
                each.unlink()
            artifact.rmdir()
    return cache


Run = Callable[..., str]


@pytest.fixture
def user(planned_cache: Path) -> Run:
    """user(package, script) -> what it prints on a machine that has the package and no compiler."""

    def run(package: Path, script: str) -> str:
        path = f"{SOURCES}{os.pathsep}{package.parent}"
        missing = {"CXX": str(package / "no compiler"), "PATH": ""}
        return _python(script, planned_cache, PYTHONPATH=path, OPSMITH_RUNTIME="python", **missing)

    return run


def _python(script: str, cache: Path, **environment: str) -> str:
    given = {**os.environ, "PYTHONPATH": str(SOURCES), "OPSMITH_CACHE_DIR": str(cache), **environment}
    done = subprocess.run([sys.executable, "-c", script], env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
