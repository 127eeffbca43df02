"""What the emulator makes of an extension's sources: headers, flags, what is refused, what is not emulated at all."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.errors import (
    CompileError,
    EmulationError,
    KernelSignatureError,
    UnknownFunctionError,
    UnsupportedFeatureError,
)
from opsmith.kernels.extension import Extension

Fresh = Callable[[str], str]

SIMPLE = """\
#include <opsmith/kernel.h>
#include "factor.cuh"
using opsmith::Tensor;
__global__ void apply(const float* x, float* y) { y[threadIdx.x] = FACTOR * x[threadIdx.x]; }
Tensor applied(Tensor x) {
  Tensor out = opsmith::empty_like(x);
  LAUNCH
  return out;
}
OPSMITH_EXPORT(applied_cuda, applied)
"""
LAUNCH = "opsmith::launch(apply, {1, x.numel()}, x, opsmith::data<const float>(x), opsmith::data<float>(out));"


def simple(
    folder: Path, name: str, launch: str = LAUNCH, factor: str = "#define FACTOR 2.0f", **more: Any
) -> Extension:
    (folder / "apply.cu").write_text(SIMPLE.replace("LAUNCH", launch) + more.pop("after", ""))
    (folder / "factor.cuh").write_text(f"{factor}\n")
    return opsmith.extension(name, folder / "apply.cu", lazy=True, **more)


@pytest.fixture
def emulated() -> Iterator[None]:
    with opsmith.emulate():
        yield


@pytest.fixture
def applied(fresh: Fresh) -> Callable[[Extension], opsmith.Op]:
    def declare(extension: Extension) -> opsmith.Op:
        op = opsmith.op(fresh("applied"))(twice)
        op.register_kernel("cuda", extension.applied_cuda)
        return op

    return declare


def twice(x: Tensor) -> Tensor:
    return x * 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the extension that several tests use: it is compiled once."""
    return tmp_path_factory.mktemp("plain")


@pytest.fixture
def plain(folder: Path) -> Extension:
    return simple(folder, "plain_apply")


def test_an_edited_header_is_seen(applied: Any, folder: Path, plain: Extension, emulated: None) -> None:
    x = torch.randn(8)
    assert torch.equal(applied(plain)(x), 2 * x)
    assert torch.equal(applied(simple(folder, "edited", factor="#define FACTOR 5.0f"))(x), 5 * x)


def test_macros_and_directories_among_the_flags(applied: Any, tmp_path: Path, emulated: None) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "number.h").write_text("constexpr float number = THREE + 4.0f;\n")
    flags = ["-DTHREE=3.0f", f"-I{tmp_path / 'include'}", "--use_fast_math", "-lineinfo"]
    ext = simple(tmp_path, "flags", factor="#include <number.h>\n#define FACTOR number", extra_cuda_cflags=flags)
    x = torch.randn(8)
    assert torch.equal(applied(ext)(x), 7 * x)


def test_an_error_of_the_compiler_names_the_authors_line(applied: Any, tmp_path: Path, emulated: None) -> None:
    with pytest.raises(CompileError, match=r"factor\.cuh:2:\d+: error: 'nonsense'"):
        applied(simple(tmp_path, "broken", factor="\nint factor = nonsense;\n#define FACTOR 2.0f"))(torch.ones(3))


def test_launches_with_brackets_are_refused_by_name(applied: Any, tmp_path: Path, emulated: None) -> None:
    launch = "apply<<<1, x.numel()>>>(opsmith::data<const float>(x), opsmith::data<float>(out));"
    with pytest.raises(UnsupportedFeatureError, match=r"launches with <<<...>>>; opsmith::launch is emul.*line 7"):
        applied(simple(tmp_path, "brackets", launch=launch))(torch.ones(3))


REFUSED_HEADERS = {
    "inline PTX": '__device__ void stop() {\n  asm volatile("exit;");\n}\n',
    "launches with <<<...>>>": "__global__ void k() {}\ninline void go() { k<<<1, 1>>>(); }\n",
}


@pytest.mark.parametrize("feature", REFUSED_HEADERS)
def test_what_a_header_uses_is_refused_if_it_is_compiled(
    applied: Any, tmp_path: Path, feature: str, emulated: None
) -> None:
    (tmp_path / "other.cuh").write_text(REFUSED_HEADERS[feature])
    included = '#include "other.cuh"\n#define FACTOR 2.0f'
    with pytest.raises(UnsupportedFeatureError) as caught:
        applied(simple(tmp_path, "refused", factor=included))(torch.ones(3))
    assert feature in str(caught.value) and "other.cuh" in str(caught.value) and "(line 2" in str(caught.value)


def test_what_a_header_uses_only_on_a_gpu_is_not_refused(applied: Any, tmp_path: Path, emulated: None) -> None:
    for number, text in enumerate(REFUSED_HEADERS.values()):
        (tmp_path / f"other{number}.cuh").write_text(text)
    guarded = '#if defined(__CUDA_ARCH__)\n#include "other0.cuh"\n#include "other1.cuh"\n#endif\n#define FACTOR 2.0f'
    assert applied(simple(tmp_path, "guarded", factor=guarded))(torch.ones(3)).tolist() == [2.0] * 3


def test_sources_that_register_operators_and_those_on_torchs_own_api_are_not_emulated(
    applied: Any, tmp_path: Path, emulated: None
) -> None:
    after = "STABLE_TORCH_LIBRARY(emulated_registers, m) {}\n"
    op = applied(simple(tmp_path, "registers", after=after))
    assert not op._families.emulated and op(torch.ones(3)).tolist() == [2.0] * 3, "by the reference"
    for more in ({"abi": "torch"}, {"cuda": False}):
        assert not simple(tmp_path, "other", **more).is_emulated


def test_a_registration_that_a_macro_hides_is_refused(applied: Any, tmp_path: Path, emulated: None) -> None:
    after = textwrap.dedent(
        """
        #define JOINED(a, b) a##b
        #define REGISTRATION JOINED(STABLE_TORCH_, LIBRARY)
        REGISTRATION(emulated_hidden, m) {}
        """
    )
    with pytest.raises(EmulationError, match="it registers operators with torch"):
        applied(simple(tmp_path, "hidden", after=after))(torch.ones(3))


def test_an_unknown_function_is_reported_with_those_that_exist(fresh: Fresh, plain: Extension, emulated: None) -> None:
    op = opsmith.op(fresh("applied"))(twice)
    op.register_kernel("cuda", plain.aplied_cuda)
    with pytest.raises(UnknownFunctionError, match="applied_cuda"):
        op(torch.ones(3))


def test_types_that_differ_from_the_ops_are_reported(fresh: Fresh, plain: Extension, emulated: None) -> None:
    def scaled(x: Tensor, factor: float) -> Tensor:
        return x * factor

    op = opsmith.op(fresh("scaled"))(scaled)
    op.register_kernel("cuda", plain.applied_cuda)
    with pytest.raises(KernelSignatureError, match=r"it is \(Tensor\) -> Tensor, and the op calls \(Tensor, float\)"):
        op(torch.ones(3), 2.0)
