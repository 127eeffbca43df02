"""CUDA in an extension: what nvcc is asked to do; and on a GPU, launches that work and launches that do not."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, Sample, errors, toolchain
from opsmith.checks import compare_samples
from opsmith.kernels.extension import Extension
from opsmith.toolchain import settings

from .cuda_sources import LAUNCHED, SQUARE

Fresh = Callable[[str], str]
EXPORT = 'extern "C" __attribute__((visibility("default")))'
# Host code that needs neither torch nor opsmith: nvcc compiles it in two seconds.
PLAIN = f"""
__global__ void nothing(float* x) {{ x[threadIdx.x] = 0; }}
{EXPORT} int launches() {{ return reinterpret_cast<const void*>(nothing) != nullptr; }}
"""
PLAIN_CPP = f"""
#ifdef OPSMITH_WITH_CUDA
#include <cuda_runtime.h>
{EXPORT} int with_cuda() {{ return CUDART_VERSION >= 12000; }}
#else
{EXPORT} int with_cuda() {{ return -1; }}
#endif
"""


@pytest.fixture(autouse=True)
def _own_switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("GPU_TARGETS", "DEBUG", "USE_CUDA", "MAX_JOBS"):
        monkeypatch.delenv(variable, raising=False)
    yield
    toolchain.forget()


@pytest.fixture
def nvcc() -> toolchain.Compiler:
    try:
        return toolchain.find_nvcc()
    except errors.NvccNotFoundError:
        pytest.skip("nvcc is not installed")


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    (tmp_path / "plain.cu").write_text(PLAIN)
    (tmp_path / "plain.cpp").write_text(PLAIN_CPP)
    return [tmp_path / "plain.cpp", tmp_path / "plain.cu"]


def with_cuda(ext: Extension) -> int:
    return int(toolchain.load_library(ext.build()).with_cuda())


def provenance(ext: Extension) -> dict[str, Any]:
    return dict(json.loads((ext.build().parent / "provenance.json").read_text()))


# --- without a GPU


def test_cpp_and_cuda_are_one_library_with_the_cuda_runtime_inside(
    nvcc: toolchain.Compiler, sources: list[Path]
) -> None:
    ext = opsmith.extension("mixed", sources, arch="sm_90")
    assert with_cuda(ext) == 1
    assert toolchain.load_library(ext.build()).launches() == 1
    needed = subprocess.run(["readelf", "-d", str(ext.build())], capture_output=True, text=True, check=True).stdout
    assert "libtorch" in needed and "cudart" not in needed
    assert [name for name in toolchain.defined_symbols(ext.build()) if name.startswith("cuda")] == []
    # The linker's command names what it linked: the objects, by their entries in the cache.
    assert [Path(word).name for word in provenance(ext)["command"] if word.endswith(".o")] == ["plain.o", "plain.o"]
    assert "-gencode=arch=compute_90,code=sm_90" in provenance(ext)["command"]


@pytest.mark.parametrize("way", ["argument", "environment"])
def test_without_cuda_its_sources_are_left_out(
    way: str, sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC", "/no/such/nvcc")
    toolchain.forget()
    cuda = False if way == "argument" else None
    if way == "environment":
        monkeypatch.setenv("USE_CUDA", "0")
    ext = opsmith.extension("left_out", sources, cuda=cuda)
    assert with_cuda(ext) == -1
    with pytest.raises(
        errors.UnknownFunctionError, match=r"'launches' \(plain\.cu left out of this build: CUDA is swit"
    ):
        _ = ext.launches
    with pytest.raises(
        errors.ExtensionArgumentError, match=r"all its sources are \.cu files, and CUDA is switched off"
    ):
        opsmith.extension("left_out", sources[1:], cuda=cuda)


def test_an_argument_outweighs_the_environment(
    nvcc: toolchain.Compiler, sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USE_CUDA", "0")
    assert with_cuda(opsmith.extension("outweighs", sources, cuda=True, arch="sm_90")) == 1


def test_nvcc_that_is_missing_is_reported_with_the_way_around(
    sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC", "/no/such/nvcc")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(sources[0].parent / "cache"))
    toolchain.forget()
    with pytest.raises(errors.NvccNotFoundError, match=r"NVCC=/no/such/nvcc(.|\n)*USE_CUDA=0"):
        opsmith.extension("missing", sources).build()


def fake_nvcc(directory: Path, version: str) -> str:
    path = directory / "nvcc"
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.1'\n")
    path.chmod(0o755)
    return str(path)


def test_nvcc_of_another_major_version_than_torch_is_refused(
    sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NVCC", fake_nvcc(tmp_path, "11.8"))
    monkeypatch.setenv("MAX_JOBS", "1")  # plain.cpp, the first of the sources, would fail first
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    toolchain.forget()
    with pytest.raises(
        errors.CudaVersionMismatchError,
        match=r"nvcc is of CUDA 11\.8\.1, but torch is built for CUDA 13\.0(.|\n)*CUDA_HOME",
    ):
        opsmith.extension("other_major", sources, arch="sm_90").build()


def test_an_architecture_that_nvcc_does_not_know_is_reported_with_those_it_does(
    nvcc: toolchain.Compiler, sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(errors.UnsupportedArchError, match=r"cannot compile for 'sm_20'; it supports .*sm_90"):
        opsmith.extension("ancient", sources, arch="sm_20")
    monkeypatch.setenv("GPU_TARGETS", "gfx90a")
    with pytest.raises(errors.BuildSettingError, match=r"GPU_TARGETS='gfx90a' is not valid: .*sm_90, 90 or 9\.0"):
        opsmith.extension("ancient", sources)


def test_a_machine_whose_gpu_nvcc_does_not_know_can_import_an_extension(
    nvcc: toolchain.Compiler, sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("GPU_TARGETS", raising=False)
    monkeypatch.setattr(settings, "architectures", lambda: ("sm_150",))
    ext = opsmith.extension("of_a_later_gpu", sources)
    with pytest.raises(errors.UnsupportedArchError, match="cannot compile for 'sm_150'"):
        ext.build()


def test_gpu_targets_say_what_is_compiled_for(
    nvcc: toolchain.Compiler, sources: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_TARGETS", "8.0;90+PTX")
    command = provenance(opsmith.extension("targets", sources))["command"]
    assert [word.rpartition("=")[2] for word in command if word.startswith("-gencode")] == [
        "sm_80",
        "sm_90",
        "compute_90",
    ]


def test_an_error_of_nvcc_shows_the_authors_line(nvcc: toolchain.Compiler, sources: list[Path]) -> None:
    sources[1].write_text(PLAIN.replace("= 0", "= undeclared"))
    with pytest.raises(
        errors.CompileError, match=rf'{sources[1]}:2: error: identifier "undeclared" is undefined'
    ) as caught:
        opsmith.extension("wrong_cuda", sources, arch="sm_90")
    assert "could not compile the extension wrong_cuda (plain.cu)" in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "which"),
    [("__CUDA_ARCH__ == 800", r" for sm_80 \(it compiles for compute_90, sm_90\):"), ("1", ":")],
    ids=["one", "all"],
)
def test_the_gpu_that_a_source_fails_for_is_named(
    nvcc: toolchain.Compiler, sources: list[Path], condition: str, which: str
) -> None:
    sources[1].write_text(f"{PLAIN}\n#if defined(__CUDA_ARCH__) && {condition}\n#error not here\n#endif\n")
    with pytest.raises(errors.CompileError, match=rf"wrong_for_one \(plain\.cu\){which}\n") as caught:
        opsmith.extension("wrong_for_one", sources[1], arch="sm_80,sm_90+PTX")
    assert "error: #error not here" in str(caught.value)


def test_debug_reaches_nvcc_and_editors_get_commands_for_cuda(nvcc: toolchain.Compiler, sources: list[Path]) -> None:
    ext = opsmith.extension("debugged", sources, arch="sm_90", debug=True)
    compiled = [Path(word) for word in provenance(ext)["command"] if word.endswith(".o")]
    commands = [json.loads((path.parent / "provenance.json").read_text())["command"] for path in compiled]
    assert ["-G" in command for command in commands] == [False, True]
    assert all("-O0" in command and "-g" in command for command in commands)
    entries = json.loads((sources[0].parent / "build" / "compile_commands.json").read_text())
    (for_cuda,) = (entry["arguments"] for entry in entries if entry["file"].endswith(".cu"))
    assert for_cuda[:5] == ["clang++", "-x", "cuda", "--cuda-gpu-arch=sm_90", "-std=c++20"]
    assert not any(word.startswith(("-gencode", "-Xcompiler", "--threads")) for word in for_cuda)


def test_a_kernel_of_the_stable_abi_loads_into_a_torch_without_cuda(
    nvcc: toolchain.Compiler, tmp_path: Path, fresh: Fresh
) -> None:
    (tmp_path / "square.cu").write_text(SQUARE)
    ext = opsmith.extension("square_cuda_ext", tmp_path / "square.cu", arch="sm_90")
    assert ext.exports() == ["square_cuda", "square_cuda_backward"]
    call = ext.square_cuda.as_operator(lambda base: f"{base}(Tensor x) -> Tensor")
    with pytest.raises(
        RuntimeError, match=r"square_cuda: x is on cpu; this kernel takes CUDA tensors: pass x\.cuda\(\)"
    ):
        call.call(torch.ones(3))


@pytest.mark.long
def test_every_shipped_source_compiles_for_every_gpu(nvcc: toolchain.Compiler) -> None:
    folder = Path(opsmith.__file__).parent / "ops"
    shipped = sorted(path for path in folder.glob("*/*.cu") if "opsmith/kernel.h" in _with_headers(path))
    assert shipped
    for source in shipped:
        archs = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
        opsmith.extension(f"every_{source.parent.name}", source, arch=archs)
        assert not (source.parent / "build").exists(), "no compile_commands.json inside the package"


def _with_headers(path: Path) -> str:
    own = re.findall(r'#include "([^"]+)"', path.read_text())
    return path.read_text() + "".join((path.parent / name).read_text() for name in own if (path.parent / name).exists())


# --- on a GPU


def square(x: Tensor) -> Tensor:
    return x * x


@pytest.fixture
def cuda_square(fresh: Fresh, tmp_path: Path) -> Op:
    (tmp_path / "square.cu").write_text(SQUARE)
    ext = opsmith.extension("gpu_square", tmp_path / "square.cu")
    op = opsmith.op(fresh("gpu_square"))(square)
    op.register_kernel("cuda", ext.square_cuda)
    op.register_backward("cuda", ext.square_cuda_backward, saves=("x",))

    @op.register_samples
    def _(device: Any, dtype: torch.dtype) -> Any:
        yield Sample(args=(torch.randn(33, 100, device=device, dtype=dtype),))
        yield Sample(args=(torch.randn(40, 27, device=device, dtype=dtype)[::3, 1::2],), name="sliced")
        yield Sample(args=(torch.randn(0, 3, device=device, dtype=dtype),), name="empty")
        yield Sample(args=(torch.tensor(1.5, device=device, dtype=dtype),), name="0-dim")

    return op


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_results_and_gradients_are_the_references(cuda_square: Op, dtype: torch.dtype, tier: str) -> None:
    for _ in range(2):
        assert [str(each) for each in compare_samples(cuda_square, "cuda", dtype) if not each] == []
    assert (
        cuda_square.kernels["cuda"]["default"].checked
        and cuda_square._families.default.backward.kernels["cuda"].checked
    )


@pytest.mark.gpu
def test_work_goes_to_the_current_stream_and_nothing_waits(cuda_square: Op) -> None:
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)
    cuda_square.prepare(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)  # holds this stream back, so that work on another would read x too early
            with torch.no_grad():
                x.fill_(3.0)
            result = cuda_square(x)
            (gradient,) = torch.autograd.grad(result, x, torch.ones_like(result))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    assert bool((result == 9.0).all()) and bool((gradient == 6.0).all())


@pytest.mark.gpu
def test_captured_in_a_graph(cuda_square: Op) -> None:
    x = torch.randn(1000, device="cuda")
    cuda_square.prepare(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = cuda_square(x)
    x.fill_(5.0)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((result == 25.0).all())


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Callable[..., Tensor]]:
    (tmp_path / "launched.cu").write_text(LAUNCHED)
    ext = opsmith.extension("launched", tmp_path / "launched.cu")
    schema = "(Tensor x, int grid, int block, int shared_bytes, int count) -> Tensor"
    operator = ext.launched_kernel.as_operator(lambda base: f"{base}{schema}")
    yield operator.call
    del operator  # with it goes what is called


@pytest.mark.gpu
def test_an_invalid_launch_is_reported_with_what_was_given_and_what_is_accepted(
    launched: Callable[..., Tensor],
) -> None:
    x = torch.ones(8, device="cuda")
    with pytest.raises(
        RuntimeError,
        match=r"launched_kernel: .*doubled<float>.* was not launched with grid \(1, 1, 1\), block \(2048, 1, 1\) and "
        r"0 bytes of dynamic shared memory on cuda:0: .*it takes at most 1024 threads per block",
    ):
        launched(x, 1, 2048, 0, 8)
    with pytest.raises(RuntimeError, match=r"and 1048576 bytes of dynamic shared memory on cuda:0: .*invalid"):
        launched(x, 1, 8, 1 << 20, 8)
    with pytest.raises(RuntimeError, match="a launch of 0 blocks or threads; return before it"):
        launched(x, 0, 8, 0, 8)
    with pytest.raises(
        RuntimeError, match="argument 2 of the kernel is 4294967296, and its parameter takes -2147483648 to"
    ):
        launched(x, 1, 8, 0, 1 << 32)
    assert launched(x, 1, 8, 0, 8).tolist() == [2.0] * 8, "no error lingers"
    assert launched(x.half(), 1, 8, 0, 8).tolist() == [2.0] * 8


@pytest.mark.gpu
def test_more_shared_memory_than_without_asking(launched: Callable[..., Tensor]) -> None:
    limit = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    if limit <= 48 * 1024:
        pytest.skip(f"this GPU has {limit} bytes of shared memory a block and no more")
    assert launched(torch.ones(8, device="cuda"), 1, 8, limit, 8).tolist() == [2.0] * 8


@pytest.mark.gpu
def test_a_gpu_that_was_not_compiled_for_is_reported(tmp_path: Path) -> None:
    major, minor = torch.cuda.get_device_capability()
    other = "sm_80" if major != 8 else "sm_90"
    (tmp_path / "launched.cu").write_text(LAUNCHED)
    ext = opsmith.extension("launched_elsewhere", tmp_path / "launched.cu", arch=other)
    schema = "(Tensor x, int grid, int block, int shared_bytes, int count) -> Tensor"
    operator = ext.launched_kernel.as_operator(lambda base: f"{base}{schema}")
    with pytest.raises(
        RuntimeError,
        match=rf"it is compiled for {other}, and this GPU is sm_{major}{minor}: name it in arch= or GPU_TARG",
    ):
        operator.call(torch.ones(8, device="cuda"), 1, 8, 0, 8)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_elementwise_mult_in_cuda_is_elementwise_mult(dtype: torch.dtype) -> None:
    op = opsmith.ops.elementwise_mult
    with op.using("extension"):
        assert [str(each) for each in compare_samples(op, "cuda", dtype) if not each] == []
        x = torch.randn(3, 4, device="cuda", dtype=dtype, requires_grad=True)
        number = torch.tensor(2.0, dtype=dtype)  # on the CPU, as torch allows
        torch.testing.assert_close(op(x, number), x * 2)
    assert op._families.named["extension"].forward.kernels["cuda"].checked
    assert op._families.named["extension"].backward.kernels["cuda"].checked


@pytest.mark.gpu
def test_the_gpus_of_this_machine_are_what_is_compiled_for() -> None:
    capabilities = {torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())}
    assert {f"sm_{major}{minor}" for major, minor in capabilities} <= set(toolchain.gpu_targets(None))
