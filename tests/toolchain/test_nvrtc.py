"""Compiling CUDA text with NVRTC, on a machine with or without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opsmith.toolchain as toolchain
from opsmith import errors
from opsmith.toolchain import cache
from opsmith.toolchain import nvrtc as nvrtc_module

KERNEL = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n'


@pytest.fixture(autouse=True)
def nvrtc() -> toolchain.Nvrtc:
    try:
        return toolchain.find_nvrtc()
    except errors.NvrtcNotFoundError as error:
        pytest.skip(f"NVRTC is not installed: {error}")


def cubin_of(source: str, arch: str, **options: Any) -> Path:
    return toolchain.CudaProgram(source, arch=arch, **options).compile().path


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    calls: list[object] = []
    real = nvrtc_module._compile

    def counted(*arguments: object) -> bytes:
        calls.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(nvrtc_module, "_compile", counted)
    return lambda: len(calls)


def test_text_becomes_a_cubin_that_is_built_once(compilations: Callable[[], int]) -> None:
    cubin = cubin_of(KERNEL, arch="sm_90", name="twice.cu")
    assert cubin.read_bytes()[:4] == b"\x7fELF"
    assert b"twice" in cubin.read_bytes()
    assert cubin_of(KERNEL, arch="sm_90", name="twice.cu") == cubin
    assert cubin_of(KERNEL, arch="sm_90", name="another name") == cubin
    assert compilations() == 1


def test_source_arch_and_options_change_what_is_built(compilations: Callable[[], int]) -> None:
    cubins = {
        cubin_of(KERNEL, arch="sm_90", name="a"),
        cubin_of(KERNEL, arch="sm_80", name="a"),
        cubin_of(KERNEL, arch="sm_90", name="a", options=["--use_fast_math"]),
        cubin_of(KERNEL, arch="sm_90", name="a", options=["-std=c++17"]),
        cubin_of(KERNEL + "\n", arch="sm_90", name="a"),
    }
    assert len(cubins) == compilations() == 5


def test_headers_for_half_types_are_there() -> None:
    source = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void half_of(__half* x, __nv_bfloat16* y) {
  x[0] = __float2half(0.5f);
  y[0] = __float2bfloat16(0.5f);
}
"""
    assert cubin_of(source, arch="sm_90", name="half.cu").is_file()


def test_headers_for_cooperative_groups_are_there() -> None:
    source = (
        '#include <cooperative_groups.h>\nextern "C" __global__ void f() { cooperative_groups::this_grid().sync(); }\n'
    )
    assert cubin_of(source, arch="sm_90", name="grid.cu").is_file()


def test_an_edited_header_of_the_author_changes_what_is_built(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "beside.h").write_text("#define A 1\n")
    (tmp_path / "include" / "far.h").write_text("#define B 1\n")
    source = '#include "beside.h"\n#include <far.h>\nextern "C" __global__ void f(int* x) { x[0] = A + B; }\n'

    def compile() -> Path:
        name = str(tmp_path / "f.cu")
        return cubin_of(source, arch="sm_90", name=name, include_dirs=[tmp_path / "include"])

    cubins = [compile()]
    (tmp_path / "beside.h").write_text("#define A 2\n")
    cubins.append(compile())
    (tmp_path / "include" / "far.h").write_text("#define B 2\n")
    cubins.append(compile())
    assert len(set(cubins)) == 3


def test_a_compile_error_shows_the_authors_line_and_caret(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void f(float* x) {\n  x[0] = undeclared;\n}\n'
    with pytest.raises(errors.CompileError) as caught:
        cubin_of(source, arch="sm_90", name=str(tmp_path / "f.cu"))
    lines = str(caught.value).splitlines()
    where = lines.index(f'  {tmp_path}/f.cu:2: error: identifier "undeclared" is undefined')
    assert lines[where + 1].strip() == "x[0] = undeclared;"
    assert lines[where + 2].index("^") == lines[where + 1].index("undeclared")
    assert lines[0].startswith("NVRTC ")
    assert "could not compile f.cu" in lines[0]
    assert "--gpu-architecture=sm_90" in str(caught.value)


def test_an_error_in_a_template_of_the_toolkit_is_placed_at_the_authors_line(tmp_path: Path) -> None:
    source = """#include <cuda/std/array>
struct S { __device__ S(int) {} };
extern "C" __global__ void f(int* x) {
  cuda::std::array<S, 2> a;
}
"""
    with pytest.raises(errors.CompileError, match=rf"{tmp_path}/f\.cu:4: error: "):
        cubin_of(source, arch="sm_90", name=str(tmp_path / "f.cu"))


def test_an_unknown_option_is_reported_with_nvrtcs_message() -> None:
    with pytest.raises(errors.CompileError, match="--no-such-option"):
        cubin_of(KERNEL, arch="sm_90", name="twice.cu", options=["--no-such-option"])


@pytest.mark.parametrize("arch", ["sm_9", "sm_35", "compute_9", "gfx90a", ""])
def test_an_architecture_nvrtc_does_not_know_is_refused_with_those_it_knows(arch: str) -> None:
    with pytest.raises(errors.UnsupportedArchError, match=rf"cannot compile for '{arch}'; it supports .*sm_90"):
        cubin_of(KERNEL, arch=arch, name="twice.cu")


def test_variants_of_an_architecture_are_known() -> None:
    assert cubin_of(KERNEL, arch="sm_90a", name="twice.cu").is_file()


def test_kernels_have_line_numbers_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """compute-sanitizer names the line then. They are kept in a section of the cubin, beside the same code."""
    plain = cubin_of(KERNEL, arch="sm_90", name="twice.cu").read_bytes()
    monkeypatch.setenv("OPSMITH_LINE_INFO", "1")
    lined = cubin_of(KERNEL, arch="sm_90", name="twice.cu").read_bytes()
    assert b".debug_line" in lined and b".debug_line" not in plain


# --- prebuilt code of other architectures ---------------------------------------------------------------------------


def shipped(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The kernel compiled for an architecture, as a package ships it; the user's own cache is empty."""
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "shipped"))
    code = cubin_of(KERNEL, arch=arch, name="twice.cu").read_bytes()
    monkeypatch.setattr(cache, "prebuilt_directories", [tmp_path / "shipped"])
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "own"))
    return code


def without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise errors.NvrtcNotFoundError("none", "13")

    version = toolchain.find_nvrtc().version
    monkeypatch.setattr(nvrtc_module, "torch_cuda_version", lambda: version)
    monkeypatch.setattr(nvrtc_module, "find_nvrtc", missing)


def test_a_prebuilt_cubin_serves_later_gpus_of_its_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: Callable[[], int]
) -> None:
    code = shipped("sm_80", tmp_path, monkeypatch)
    for arch in ("sm_80", "sm_86", "sm_89"):
        assert cubin_of(KERNEL, arch=arch, name="twice.cu").read_bytes() == code
    assert compilations() == 1
    assert cubin_of(KERNEL, arch="sm_90", name="twice.cu").read_bytes() != code
    assert cubin_of(KERNEL, arch="sm_75", name="twice.cu").read_bytes() != code
    assert compilations() == 3


def test_without_nvrtc_prebuilt_ptx_serves_later_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = shipped("compute_90", tmp_path, monkeypatch)
    assert b".target sm_90" in code
    without_nvrtc(monkeypatch)
    for arch in ("sm_90", "sm_100", "sm_120"):
        assert cubin_of(KERNEL, arch=arch, name="twice.cu").read_bytes() == code
    with pytest.raises(errors.NvrtcNotFoundError):
        cubin_of(KERNEL, arch="sm_86", name="twice.cu")


def test_prebuilt_code_with_features_of_one_gpu_serves_that_gpu_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = shipped("sm_100a", tmp_path, monkeypatch)
    assert cubin_of(KERNEL, arch="sm_100", name="twice.cu").read_bytes() == code
    assert cubin_of(KERNEL, arch="sm_103", name="twice.cu").read_bytes() != code


def test_ptx_with_features_of_one_gpu_serves_that_gpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = shipped("compute_90a", tmp_path, monkeypatch)
    without_nvrtc(monkeypatch)
    assert cubin_of(KERNEL, arch="sm_90", name="twice.cu").read_bytes() == code
    with pytest.raises(errors.NvrtcNotFoundError):
        cubin_of(KERNEL, arch="sm_100", name="twice.cu")


def test_a_gpu_that_nvrtc_does_not_know_gets_prebuilt_ptx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = shipped("compute_120", tmp_path, monkeypatch)
    assert cubin_of(KERNEL, arch="sm_150", name="twice.cu").read_bytes() == code
    with pytest.raises(errors.UnsupportedArchError, match="cannot compile for 'sm_150'"):
        cubin_of(f"// not prebuilt\n{KERNEL}", arch="sm_150", name="twice.cu")


def test_a_damaged_prebuilt_cubin_is_named_and_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: Callable[[], int]
) -> None:
    code = shipped("sm_90", tmp_path, monkeypatch)
    (cubin,) = (tmp_path / "shipped").rglob("kernel.cubin")
    cubin.write_bytes(code[:-1] + bytes([code[-1] ^ 1]))
    with pytest.warns(errors.DamagedPrebuiltWarning, match=r"the contents of kernel\.cubin have changed"):
        found = cubin_of(KERNEL, arch="sm_90", name="twice.cu")
    assert found.read_bytes() == code and found.is_relative_to(tmp_path / "own")
    assert compilations() == 2
