"""A package with an op of each kind that can be built ahead of time, in a directory of its own."""

from __future__ import annotations

import os
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import fresh_process

import opsmith

Run = Callable[..., str]
Once = Callable[[str, Callable[[Path], object]], Path]
PACKAGE = Path("project") / "src" / "aheadlib"
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
    if dtype is torch.float64:  # each dtype has kernels of its own, which tests would wait for
        return
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


RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(time.time())
"""Of the tests: the same in all processes of pytest-xdist."""


def written(directory: Path, name: str = RUN) -> Path:
    """The package's directory. Its kernels hold a number, so they are in no cache of an earlier run; packages of the
    same name share theirs, also between processes."""
    number = zlib.crc32(name.encode()) % 10**6
    package = directory / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import ops\n")
    (package / "ops.py").write_text(OPS.format(name="aheadlib", number=number))
    (package / "negated.cpp").write_text(NEGATED.format(number=number))
    return package


def build(package: Path, *arguments: str, fails: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """`opsmith build` in the project's directory."""
    done = fresh_process.run(
        ["-m", "opsmith.cli", "build", *arguments],
        cwd=package.parents[1],
        env={**os.environ, "PYTHONPATH": str(SOURCES), "OPSMITH_RUNTIME": "python", "COLUMNS": "200", **environment},
    )
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done


def python(script: str, cache: Path, **environment: str) -> str:
    given = {**os.environ, "PYTHONPATH": str(SOURCES), "OPSMITH_CACHE_DIR": str(cache), **environment}
    done = fresh_process.run(["-c", script], env=given)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
