"""A library with kernels that C++ launches by name: loaded without opsmith, it launches them out of its own images.

The host code is compiled with tests/kernels/as_on_gpu.h: CPU tensors go the way of a GPU, to a fake driver.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packages import SOURCES, Once, build

from opsmith.errors import ToolMissingError
from opsmith.toolchain import find_nvrtc

KERNELS = Path(__file__).parents[1] / "kernels"
OPS = """
from pathlib import Path

import torch
from torch import Tensor

import opsmith

here = Path(__file__).parent
cu = opsmith.cuda_source(here / "kernels.cu")
ext = opsmith.extension("launched_ext", here / "launch.cpp", kernels=cu, lazy=True)


@opsmith.op("launched::scaled")
def scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor


scaled.register_kernel("cuda", ext.scaled_kernel)
scaled.register_backward("cuda", ext.scaled_backward_kernel, saves=("x", "factor"))
scaled.register_kernel("cpu", ext.scaled_kernel)  # as if on a GPU


@scaled.register_samples
def _(device, dtype):
    if dtype in (torch.float32, torch.float64):
        yield opsmith.Sample((torch.ones(200, device=device, dtype=dtype), 2.0))
        yield opsmith.Sample((torch.ones(200, device=device, dtype=dtype), 13.0), name="declined")


with_constants = opsmith.cuda_source('__constant__ float table[4]; __global__ void read(float* y) { y[0] = table[1]; }')
other = opsmith.extension("constant_ext", here / "launch.cpp", kernels=with_constants, lazy=True)


@opsmith.op("launched::looked_up")
def looked_up(x: Tensor, factor: float) -> Tensor:
    return x + factor


looked_up.register_kernel("cuda", other.scaled_kernel)
"""
KERNEL = """
namespace ns {
template <typename T, int Unroll> __global__ void scale(const T* x, T* y, T factor, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] * factor;
}
}
__global__ void touch(float* y) { extern __shared__ float bytes[]; bytes[0] = 1; y[0] = bytes[0]; }
"""
LAUNCH = """
#include "as_on_gpu.h"
#include <opsmith/kernel.h>

using opsmith::Tensor;

Tensor scaled(Tensor x, double factor) {
  opsmith::expect(x, "x").cuda();
  if (factor == 13) opsmith::decline();
  Tensor out = opsmith::empty_like(x);
  const std::string type = x.element_size() == 8 ? "double" : "float";
  opsmith::dispatch<float, double, int>(x, "x", [&](auto zero) {
    using scalar = decltype(zero);
    const char* name = sizeof(scalar) == 8 ? "ns::scale<double, 2>" : "ns::scale< float,2 >";
    if (std::is_same_v<scalar, int>) name = "ns::scale<int, 2>";
    opsmith::launch(name, {opsmith::blocks_for(x.numel(), 128), 128}, x, opsmith::data<const scalar>(x),
                    opsmith::data<scalar>(out), factor, x.numel());
  });
  if (opsmith::gpu_of(x).multiprocessors > 100) {
    opsmith::launch("touch", {1, 32, factor == 7 ? 300000 : 100000}, x, static_cast<float*>(nullptr));
  }
  return out;
}
OPSMITH_EXPORT(scaled_kernel, scaled)

std::vector<Tensor> scaled_backward(std::optional<Tensor> grad, Tensor x, double factor, std::vector<bool> needs) {
  return {scaled(*grad, factor)};
}
OPSMITH_EXPORT(scaled_backward_kernel, scaled_backward)
"""


@pytest.fixture(scope="module")
def fake_cuda() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fake_cuda", KERNELS / "fake_cuda.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def library(once: Once, fake_cuda: ModuleType) -> Path:
    try:
        find_nvrtc()
    except ToolMissingError:
        pytest.skip("NVRTC is not installed")
    (found,) = (once("launched", lambda directory: _build(directory, fake_cuda)) / "project" / "dist").iterdir()
    return found


def _build(directory: Path, fake_cuda: ModuleType) -> None:
    package = directory / "project" / "src" / "launched"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .ops import looked_up, scaled\n")
    (package / "ops.py").write_text(OPS)
    (package / "kernels.cu").write_text(KERNEL)
    (package / "launch.cpp").write_text(LAUNCH)
    (package / "as_on_gpu.h").write_text((KERNELS / "as_on_gpu.h").read_text())
    (package.parents[1] / "pyproject.toml").write_text('[project]\nname = "launched"\nversion = "1"\n')
    done = build(package, "--arch", "sm_90,compute_90a", "--library")
    printed = " ".join((done.stdout + done.stderr).split())
    assert "launched::looked_up on cuda: <cuda_source at ops.py:" in printed, printed
    assert "has __constant__ variables, which Python sets" in printed
    fake_cuda.libraries_in(package.parents[1])


ALONE = """
import ctypes, sys
import torch
directory, library = sys.argv[1:]
ctypes.CDLL(f"{directory}/libtorch_cuda.so", mode=ctypes.RTLD_GLOBAL)
fake = ctypes.CDLL("libcuda.so.1")
fake.fake_kernel.restype = ctypes.c_char_p
fake.fake_shape.restype = ctypes.POINTER(ctypes.c_uint)
fake.fake_bytes.restype = ctypes.c_void_p
fake.fake_reset(ctypes.c_void_p(0x1000))
torch.ops.load_library(library)
scaled = torch.ops.launched.scaled

def launches():
    found = [(fake.fake_kernel(i).decode(), *fake.fake_shape(i)[:7]) for i in range(fake.fake_launches())]
    return found

def message(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it ran")

x = torch.ones(300)
"""
LAUNCHED = """
for _ in range(2):
    y = scaled(x, 2.5)
scaled(x.double(), 2.5)
found = launches()
assert [name for name, *_ in found[:2]] == ["_ZN2ns5scaleIfLi2EEEvPKT_PS1_S1_i", "_Z5touchPf"], found
assert found[4][0] == "_ZN2ns5scaleIdLi2EEEvPKT_PS1_S1_i", found
assert found[0][1:] == (3, 1, 1, 128, 1, 1, 0) and found[1][1:] == (1, 1, 1, 32, 1, 1, 100000)
parameters = ctypes.string_at(fake.fake_bytes(2), 24)
assert parameters[:8] == x.data_ptr().to_bytes(8, "little") and parameters[8:16] == y.data_ptr().to_bytes(8, "little")
assert parameters[16:] == torch.tensor([2.5]).numpy().tobytes() + (300).to_bytes(4, "little")
assert fake.fake_calls(b"cuLibraryLoadData") == 3, "an image for each instance, one for plain kernels"
assert fake.fake_calls(b"cuKernelSetAttribute") == 3 + 1, "large clusters for each kernel, shared memory for one"
text = message(lambda: scaled(x, 13.0))
assert "the library of launched has no kernel for this call: x is float32 [300]" in text, text
text = message(lambda: scaled(x.int(), 2.0))
assert "the library of launched has no kernel for this call: x is int32 [300]" in text, "an instance of no sample"
text = message(lambda: scaled(x.half(), 2.0))
assert "is of float16; this kernel takes float32" in text, text

made = torch.library.Library("launched", "FRAGMENT")
made.define("_scaled_reference(Tensor x, float factor) -> Tensor")
made.impl("_scaled_reference", lambda x, factor: x * factor, "CompositeExplicitAutograd")
ctypes.CDLL(library).opsmith_library_fallback(b"scaled")
assert torch.equal(scaled(x, 13.0), x * 13.0) and torch.equal(scaled(x.int(), 2.0), x * 2.0)
assert "opsmith" not in sys.modules
print("launched")
"""
OLDER = """
fake.fake_device_attribute(75, 8)
assert "has no kernel for this call" in message(lambda: scaled(x, 2.5))
assert fake.fake_launches() == 0
print("refused")
"""
LATER = OLDER.replace("75, 8", "75, 10")


def run(script: str, library: Path, *, with_opsmith: bool = False) -> str:
    directory = library.parents[1]
    path = f"{SOURCES}{os.pathsep}{directory / 'src'}" if with_opsmith else ""
    done = subprocess.run(
        [sys.executable, "-c", ALONE + script, str(directory), str(library)],
        env={**os.environ, "LD_LIBRARY_PATH": str(directory), "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kernels_are_launched_out_of_the_librarys_images(library: Path) -> None:
    assert run(LAUNCHED, library) == "launched\n"


@pytest.mark.parametrize("script", [OLDER, LATER], ids=["an older one", "PTX with the features of another"])
def test_a_gpu_without_an_image_has_no_kernel(library: Path, script: str) -> None:
    assert run(script, library) == "refused\n"


def test_the_images_are_in_it_once_for_each_target(library: Path) -> None:
    image = library.read_bytes()
    assert image.count(b".version ") == 3 and b".target sm_90" in image, "PTX of two instances and the plain kernels"
    assert image.count(b"\x7fELF") == 1 + 3, "and the cubins"
