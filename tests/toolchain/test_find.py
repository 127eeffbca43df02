"""Finding compilers, NVRTC and headers: what is found, in which order, and what is said when there is none."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

import opsmith.toolchain as toolchain
from opsmith import errors
from opsmith.toolchain import find

from .support import PRELUDE

needs_nvrtc = pytest.mark.skipif(
    not importlib.util.find_spec("cuda") or not importlib.util.find_spec("cuda.bindings"),
    reason="cuda-bindings is not installed",
)


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_installed_compiler_is_found_with_its_version() -> None:
    compiler = toolchain.find_cxx()
    assert compiler.kind in ("gcc", "clang")
    assert compiler.path.is_file()
    assert int(compiler.version.split(".")[0]) >= 10


@pytest.mark.parametrize(
    ("says", "kind", "version"),
    [
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0", "gcc", "12.2.0"),
        ("g++-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", "gcc", "13.3.0"),
        ("x86_64-conda-linux-gnu-c++ (conda-forge gcc 14.2.0-1) 14.2.0", "gcc", "14.2.0"),
        ("true (GNU coreutils) 9.1", "gcc", "of unknown version"),
        ("Debian clang version 14.0.6", "clang", "14.0.6"),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)", "clang", "18.1.3"),
    ],
)
def test_a_compiler_is_identified_by_its_version_line(
    says: str, kind: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(script(tmp_path / "cxx", f"echo '{says}'")))
    compiler = toolchain.find_cxx()
    assert (compiler.kind, compiler.version) == (kind, version)


def test_cxx_may_carry_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = script(tmp_path / "launcher", 'exec "$@"')
    monkeypatch.setenv("CXX", f"{launcher} g++")
    assert toolchain.find_cxx().command == [str(launcher), "g++"]
    library = toolchain.compile_shared_library("answer", text='extern "C" int answer() { return 42; }', abi="plain")
    assert library.is_file()


def test_path_is_searched_for_cxx_then_gxx_then_clang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(shutil, "which", lambda name, **_: str(tmp_path / name) if (tmp_path / name).exists() else None)
    for name in ("clang++", "g++", "c++"):
        script(tmp_path / name, "echo 'g++ (test) 12.1.0'")
        toolchain.forget()
        assert toolchain.find_cxx().path == tmp_path / name


def test_a_broken_compiler_on_path_is_passed_over_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "c++", "exit 1")
    script(tmp_path / "g++", "echo 'g++ (test) 12.1.0'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert toolchain.find_cxx().path == tmp_path / "g++"


def test_no_compiler_names_what_was_looked_for_and_the_apt_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.CompilerNotFoundError, match=r"c\+\+ on PATH.*\n.*apt-get install g\+\+"):
        toolchain.find_cxx()


def test_a_cxx_that_is_not_there_is_not_silently_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(errors.CompilerNotFoundError, match="CXX=no-such-compiler"):
        toolchain.find_cxx()


def test_a_compiler_without_cxx20_is_named_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(script(tmp_path / "cxx", "echo 'g++ (Ubuntu 9.4.0) 9.4.0'")))
    with pytest.raises(errors.CompilerTooOldError, match=r"gcc 9\.4\.0.*gcc 10 or newer"):
        toolchain.find_cxx()


def test_a_tool_is_looked_for_once_and_a_failure_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "cxx"))
    with pytest.raises(errors.CompilerNotFoundError):
        toolchain.find_cxx()
    script(tmp_path / "cxx", f"echo x >> {tmp_path}/asked; echo 'g++ (test) 12.1.0'")
    toolchain.find_cxx()
    toolchain.find_cxx()
    assert (tmp_path / "asked").read_text() == "x\n"


NVCC_SAYS = "echo 'Cuda compilation tools, release 13.0, V13.0.88'"


def test_nvcc_is_taken_from_nvcc_then_cuda_home_then_cuda_path_then_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {name: script(tmp_path / name / "bin" / "nvcc", NVCC_SAYS) for name in ("direct", "home", "path", "PATH")}
    monkeypatch.setenv("NVCC", str(places["direct"]))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'PATH' / 'bin'}:/bin")
    for variable, name in (("NVCC", "direct"), ("CUDA_HOME", "home"), ("CUDA_PATH", "path"), ("", "PATH")):
        toolchain.forget()
        compiler = toolchain.find_nvcc()
        assert (compiler.path, compiler.kind, compiler.version) == (places[name], "nvcc", "13.0.88")
        monkeypatch.delenv(variable, raising=False)


def test_a_missing_nvcc_is_reported_with_the_searched_places_and_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC", "/no/such/nvcc")
    with pytest.raises(errors.NvccNotFoundError, match=r"NVCC=/no/such/nvcc(.|\n)*pip install 'opsmith\[cuda13\]'"):
        toolchain.find_nvcc()


@needs_nvrtc
def test_nvrtc_is_found_with_headers_for_half_types_and_cooperative_groups() -> None:
    nvrtc = toolchain.find_nvrtc()
    assert nvrtc.major >= 12
    assert any((directory / "cuda_fp16.h").is_file() for directory in nvrtc.include_dirs)
    assert any((directory / "cuda_bf16.h").is_file() for directory in nvrtc.include_dirs)
    assert any((directory / "cuda/std/type_traits").is_file() for directory in nvrtc.include_dirs)


@needs_nvrtc
def test_nvrtc_of_another_major_version_than_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = "12.6" if toolchain.find_nvrtc().major != 12 else "13.0"
    toolchain.forget()
    monkeypatch.setattr(torch.version, "cuda", other)
    extra = f"cuda{other.split('.')[0]}"
    with pytest.raises(
        errors.CudaVersionMismatchError, match=rf"torch is built for CUDA {other}(.|\n)*opsmith\[{extra}\]"
    ):
        toolchain.find_nvrtc()


@needs_nvrtc
def test_nvrtc_without_headers_names_the_extra_that_has_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(find, "_include_candidates", lambda *_: [tmp_path])
    with pytest.raises(errors.CudaHeadersNotFoundError, match=r"cuda_fp16\.h(.|\n)*pip install 'opsmith\[cuda1"):
        toolchain.find_nvrtc()


@needs_nvrtc
def test_headers_of_another_major_version_are_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cuda_fp16.h").touch()
    (tmp_path / "cuda.h").write_text("#define CUDA_VERSION 9020\n")
    monkeypatch.setattr(find, "_include_candidates", lambda *_: [tmp_path])
    with pytest.raises(errors.CudaHeadersNotFoundError):
        toolchain.find_nvrtc()


@pytest.mark.parametrize(("torch_cuda", "extra"), [(None, "cuda13"), ("12.8", "cuda12"), ("13.0", "cuda13")])
def test_without_nvrtc_the_extra_for_this_torch_is_named(
    torch_cuda: str | None, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    monkeypatch.setattr(torch.version, "cuda", torch_cuda)
    with pytest.raises(errors.NvrtcNotFoundError, match=rf"pip install 'opsmith\[{extra}\]'"):
        toolchain.find_nvrtc()


def test_python_headers_are_found_or_the_apt_line_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    try:
        assert (toolchain.python_headers() / "Python.h").is_file()
    except errors.PythonHeadersNotFoundError as error:
        pytest.skip(f"Python's headers are not installed: {error}")
    toolchain.forget()
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(errors.PythonHeadersNotFoundError, match=rf"{tmp_path}(.|\n)*apt-get install python3-dev"):
        toolchain.python_headers()


def test_importing_starts_no_process_and_imports_nothing_heavy() -> None:
    code = f"""
import sys
import sysconfig
events = set()
sys.addaudithook(lambda event, _: events.add(event))
{PRELUDE}
heavy = {{"torch", "triton", "numba", "numpy", "cuda.bindings", "rich"}} & set(sys.modules)
assert not heavy, heavy
assert not events & {{"subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec"}}, events
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
