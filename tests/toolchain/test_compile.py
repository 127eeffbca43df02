"""Compiling C++ and CUDA: what is built, when it is built again, and what a compile error shows."""

from __future__ import annotations

import ctypes
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import opsmith.toolchain as toolchain
from opsmith import errors
from opsmith.toolchain import cache
from opsmith.toolchain.compile import host_arch, stub

EXPORT = 'extern "C" __attribute__((visibility("default")))'

Compile = Callable[..., Path]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source file with a header of its own beside it and another one in an include directory."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "base.h").write_text("inline int base() { return 40; }\n")
    (tmp_path / "offset.h").write_text("inline int offset() { return 2; }\n")
    path = tmp_path / "answer.cpp"
    path.write_text(
        f'#include <base.h>\n#include "offset.h"\n{EXPORT} int answer() {{ return base() + offset() + MORE; }}\n'
    )
    return path


@pytest.fixture
def compile(source: Path) -> Compile:
    def compile(**changes: object) -> Path:
        arguments = {
            "abi": "plain",
            "include_dirs": [source.parent / "include"],
            "extra_cflags": ["-DMORE=0"],
            **changes,
        }
        return toolchain.compile_shared_library("mylib::answer", [source], **arguments)  # type: ignore[arg-type]

    return compile


def answer(library: Path) -> int:
    return int(toolchain.load_library(library).answer())


def test_a_source_file_becomes_a_library(compile: Compile) -> None:
    library = compile()
    assert answer(library) == 42
    assert library.name == "mylib__answer.so"


def test_the_second_call_does_not_run_the_compiler(compile: Compile, logging_compiler: Callable[[], int]) -> None:
    assert compile() == compile()
    assert logging_compiler() == 1


def test_an_edited_header_changes_what_is_built(compile: Compile, source: Path) -> None:
    assert answer(compile()) == 42
    (source.parent / "offset.h").write_text("inline int offset() { return 3; }\n")
    assert answer(compile()) == 43
    (source.parent / "include" / "base.h").write_text("inline int base() { return 50; }\n")
    assert answer(compile()) == 53


def test_sources_flags_and_abi_change_what_is_built(compile: Compile, source: Path) -> None:
    libraries = {compile(), compile(extra_cflags=["-DMORE=1"]), compile(extra_ldflags=["-s"]), compile(abi="torch")}
    source.write_text(source.read_text() + "\n")
    libraries |= {compile(), compile(text="int more;\n"), compile(extra_ldflags=["-lm"])}
    assert len(libraries) == 7


def test_neither_the_compilers_version_nor_the_place_of_the_files_matters(
    compile: Compile, source: Path, tmp_path: Path, use_compiler: Callable[[str], Path]
) -> None:
    first = compile()
    use_compiler('echo "g++ (another) 14.1.0"; [ "$1" = --version ]\n')  # cannot compile anything
    assert compile() == first
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in (source, source.parent / "offset.h"):
        path.rename(elsewhere / path.name)
    (source.parent / "include").rename(elsewhere / "headers")
    again = toolchain.compile_shared_library(
        "mylib::answer", [elsewhere / source.name], abi="plain", extra_cflags=[f"-I{elsewhere / 'headers'}", "-DMORE=0"]
    )
    assert again == first


def test_a_prebuilt_library_needs_no_compiler(
    compile: Compile, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prebuilt = compile()
    monkeypatch.setattr(cache, "prebuilt_directories", [cache_dir])
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    toolchain.forget()
    assert compile() == prebuilt
    with pytest.raises(errors.CompilerNotFoundError):
        compile(extra_cflags=["-DMORE=1"])


def test_a_library_can_be_looked_up_without_building_it(tmp_path: Path, logging_compiler: Callable[[], int]) -> None:
    (tmp_path / "answer.cpp").write_text(f"{EXPORT} int answer() {{ return 42; }}\n")
    sources = [tmp_path / "answer.cpp"]
    assert toolchain.find_shared_library("answer", sources, abi="plain") is None
    assert logging_compiler() == 0
    library = toolchain.compile_shared_library("answer", sources, abi="plain")
    assert toolchain.find_shared_library("answer", sources, abi="plain") == library
    assert toolchain.find_shared_library("answer", sources, abi="plain", extra_cflags=["-O1"]) is None


def test_generated_text_is_compiled_and_not_kept() -> None:
    library = toolchain.compile_shared_library("answer", text=f"{EXPORT} int answer() {{ return 42; }}", abi="plain")
    assert answer(library) == 42
    assert sorted(each.name for each in library.parent.iterdir()) == ["answer.so", "provenance.json"]


def test_symbols_are_hidden_unless_exported() -> None:
    library = toolchain.compile_shared_library("hidden", text='extern "C" int hidden() { return 1; }', abi="plain")
    with pytest.raises(AttributeError):
        _ = toolchain.load_library(library).hidden


def test_native_code_is_kept_apart_by_processor() -> None:
    assert host_arch(["-O3"]) == host_arch(["-march=x86-64-v3"])
    assert host_arch(["-march=native"]).startswith(f"{host_arch([])}-native-")


STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
Tensor copied(const Tensor& x) { return torch::stable::clone(x); }
STABLE_TORCH_LIBRARY(opsmith_toolchain_test, m) { m.def("copied(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(opsmith_toolchain_test, CPU, m) { m.impl("copied", TORCH_BOX(&copied)); }
"""


def test_a_library_on_the_stable_abi_loads_into_torch_and_outlives_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copied.cpp").write_text(STABLE)

    def compile_stable() -> Path:
        return toolchain.compile_shared_library("copied", [tmp_path / "copied.cpp"], abi="stable")

    library = compile_stable()
    toolchain.load_library(library)
    x = torch.randn(3)
    assert torch.equal(torch.ops.opsmith_toolchain_test.copied(x), x)
    assert str(Path(torch.__file__).parent).encode() not in library.read_bytes(), "no path of this machine inside"
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert compile_stable() == library


def test_a_library_on_torchs_own_abi_is_built_for_each_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_for_torch() -> Path:
        return toolchain.compile_shared_library("empty", text="int nothing;\n", abi="torch")

    first = compile_for_torch()
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert compile_for_torch() != first


def test_a_missing_source_and_an_empty_list_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        errors.SourceNotFoundError, match=rf"{tmp_path}/gone\.cpp of mylib cannot be read: No such file"
    ):
        toolchain.compile_shared_library("mylib", [tmp_path / "gone.cpp"], abi="plain")
    with pytest.raises(errors.NoSourceError, match="nothing to compile for mylib"):
        toolchain.compile_shared_library("mylib", [], abi="plain")


# --- compile errors


def test_a_compile_error_shows_the_authors_line_the_caret_and_the_compiler(tmp_path: Path, cache_dir: Path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text("int one() { return 1; }\nint two() { return undeclared; }\n")
    with pytest.raises(errors.CompileError) as caught:
        toolchain.compile_shared_library("wrong", [source], abi="plain", label="the extension mylib")
    message, lines = str(caught.value), str(caught.value).splitlines()
    assert "could not compile the extension mylib" in lines[0]
    assert f"  {source}:2:20: error: 'undeclared' was not declared in this scope" in lines
    where = lines.index("      2 | int two() { return undeclared; }")
    assert lines[where + 1].rstrip("~").endswith("|                    ^")
    assert str(toolchain.find_cxx()) in message
    assert f"Command: {toolchain.find_cxx().path} -O3" in message
    assert "'undeclared' was not declared" in caught.value.log
    assert not list((cache_dir / "artifacts").iterdir()), "a failure is not kept"


def test_an_error_inside_a_header_of_the_system_is_placed_at_the_authors_line(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cpp"
    source.write_text(
        "#include <algorithm>\n#include <vector>\nstruct S {};\n"
        "void f(std::vector<S>& v) {\n  std::sort(v.begin(), v.end());\n}\n"
    )
    with pytest.raises(errors.CompileError) as caught:
        toolchain.compile_shared_library("wrong", [source], abi="plain")
    message = str(caught.value)
    assert f"{source}:5: error: no match for 'operator<'" in message
    assert "    5 |   std::sort(v.begin(), v.end());" in message
    assert len(message.splitlines()) < 40 < len(caught.value.log.splitlines()), "the flood stays in the log"


def test_an_error_in_generated_text_shows_its_line() -> None:
    with pytest.raises(errors.CompileError, match=r"  made\.cpp:2:9: error: 'x' was not declared(.|\n)*2 |  return x;"):
        toolchain.compile_shared_library("made", text="int f() {\n return x;\n}\n", abi="plain")


def test_a_missing_library_is_reported_with_the_linkers_message() -> None:
    with pytest.raises(errors.CompileError, match="cannot find -lno_such_library"):
        toolchain.compile_shared_library("a", text="int a;\n", abi="plain", extra_ldflags=["-lno_such_library"])


def test_errors_arrive_whole_from_another_process() -> None:
    with pytest.raises(errors.CompileError) as caught:
        toolchain.compile_shared_library("made", text="int f() { return x; }\n", abi="plain")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is errors.CompileError
    assert (str(copy), copy.log, copy.errors) == (str(caught.value), caught.value.log, caught.value.errors)


# --- Linking against a stub of a library: the real one is needed only when the result is loaded

THREADS = f"""
#include <stdint.h>
extern "C" int torch_get_num_threads(uint32_t*);
{EXPORT} int threads() {{ uint32_t found; return torch_get_num_threads(&found) ? -1 : found; }}
"""


def test_a_kernel_finds_torchs_functions() -> None:
    library = toolchain.load_library(toolchain.compile_shared_library("threads", text=THREADS, abi="sleef"))
    assert library.threads() == torch.get_num_threads()


def test_it_does_not_load_without_torch() -> None:
    path = toolchain.compile_shared_library("threads", text=THREADS, abi="sleef")
    load = f"import ctypes\ntry:\n    ctypes.CDLL({str(path)!r})\nexcept OSError as error:\n    print(error)"
    output = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True).stdout
    assert "libtorch_cpu.so: cannot open shared object file" in output


def test_the_linker_reads_no_library_of_torchs(tmp_path: Path, use_compiler: Callable[[str], Path]) -> None:
    use_compiler(f'version "$1"\necho "$@" >> {tmp_path}/commands\nreal "$@"\n')
    toolchain.compile_shared_library("threads", text=THREADS, abi="sleef")
    (command,) = [line for line in (tmp_path / "commands").read_text().splitlines() if "threads.so" in line]
    assert "-ltorch" not in command
    assert str(stub("libtorch_cpu.so")) in command


def test_what_is_built_is_found_where_no_compiler_is(monkeypatch: pytest.MonkeyPatch) -> None:
    path = toolchain.compile_shared_library("threads", text=THREADS, abi="sleef")
    monkeypatch.setenv("CXX", "/there/is/none")
    toolchain.forget()
    assert toolchain.compile_shared_library("threads", text=THREADS, abi="sleef") == path


# --- nvcc


@pytest.fixture
def nvcc() -> toolchain.Compiler:
    try:
        return toolchain.find_nvcc()
    except errors.NvccNotFoundError:
        pytest.skip("nvcc is not installed")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "twice.cu"
    path.write_text(
        """#include "factor.h"
__global__ void twice(float* x) { x[threadIdx.x] *= FACTOR; }
"""
    )
    (tmp_path / "factor.h").write_text("#define FACTOR 2\n")
    return path


def test_nvcc_makes_a_cubin_and_makes_it_again_for_an_edited_header(nvcc: toolchain.Compiler, kernel: Path) -> None:
    cubin = toolchain.compile_with_nvcc("twice", kernel, arch="sm_90")
    assert cubin.suffix == ".cubin"
    assert cubin.read_bytes()[:4] == b"\x7fELF"
    assert toolchain.compile_with_nvcc("twice", kernel, arch="sm_90") == cubin
    (kernel.parent / "factor.h").write_text("#define FACTOR 3\n")
    assert toolchain.compile_with_nvcc("twice", kernel, arch="sm_90") != cubin


def test_an_error_of_nvcc_shows_the_authors_line(nvcc: toolchain.Compiler, kernel: Path) -> None:
    kernel.write_text("__global__ void f(float* x) {\n  x[0] = undeclared;\n}\n")
    with pytest.raises(
        errors.CompileError, match=rf'{kernel}:2: error: identifier "undeclared" is undefined'
    ) as caught:
        toolchain.compile_with_nvcc("wrong", kernel, arch="sm_90")
    assert "x[0] = undeclared;" in str(caught.value)


def test_nvcc_of_another_major_version_than_torch_is_refused(
    nvcc: toolchain.Compiler, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "11.8")
    with pytest.raises(errors.CudaVersionMismatchError, match=r"torch is built for CUDA 11\.8(.|\n)*CUDA_HOME"):
        toolchain.compile_with_nvcc("twice", kernel, arch="sm_90")


def test_loaded_libraries_are_ctypes_libraries(compile: Compile) -> None:
    assert isinstance(toolchain.load_library(compile()), ctypes.CDLL)
