"""CUDA C++ by name, compiled without a GPU: files and texts, templates, edits, errors at the author's lines."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fresh_process
import pytest

import opsmith
from opsmith import errors
from opsmith.kernels.cuda_source import Attributes, CudaSource
from opsmith.kernels.cuda_source.attributes import _threads_with
from opsmith.toolchain import find_nvrtc
from opsmith.toolchain import nvrtc as nvrtc_module

ARCH = "sm_90"
SCALE = """\
template <typename T, int N = 2>
__global__ void scale(const T* __restrict__ x, T* __restrict__ y, float factor, long long n) {
  for (long long i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] * T(factor) * T(N);
}
__global__ void twice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }
extern "C" __global__ void thrice(float* x) { x[threadIdx.x] *= 3; }
"""


@pytest.fixture(autouse=True)
def _nvrtc() -> None:
    try:
        find_nvrtc()
    except errors.NvrtcNotFoundError as error:
        pytest.skip(f"NVRTC is not installed: {error}")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> Callable[[], int]:
    """How often NVRTC has run since, with an empty cache to begin with."""
    calls: list[object] = []
    real = nvrtc_module._compile

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(nvrtc_module, "_compile", counted)
    return lambda: len(calls)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# --- files and texts ------------------------------------------------------------------------------------------------


def test_a_file_is_found_by_its_path_and_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "scale.cu", SCALE)
    monkeypatch.chdir(tmp_path)
    for given in (path, str(path), "scale.cu", Path("scale.cu")):
        assert opsmith.cuda_source(given).kernels == ["scale", "twice", "thrice"]


def test_a_file_is_found_beside_the_python_that_names_it(tmp_path: Path) -> None:
    write(tmp_path / "package" / "scale.cu", SCALE)
    write(tmp_path / "package" / "include" / "n.h", "constexpr int n = 1;\n")
    script = write(
        tmp_path / "package" / "user.py",
        "import opsmith\ncu = opsmith.cuda_source('scale.cu', include_dirs=['include'])\n"
        "print(cu, cu._settings.include_dirs[0])",
    )
    said = fresh_process.run([str(script)], cwd="/", check=True).stdout
    assert said.startswith("<CudaSource scale.cu: scale<typename T, int N>, twice, thrice>")
    assert said.strip().endswith(str(tmp_path / "package" / "include"))


def test_the_current_directory_comes_first_and_a_later_change_of_it_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "one" / "k.cu", "__global__ void one() {}")
    write(tmp_path / "two" / "k.cu", "__global__ void two() {}")
    monkeypatch.chdir(tmp_path / "one")
    cu = opsmith.cuda_source("k.cu")
    monkeypatch.chdir(tmp_path / "two")
    assert cu.kernels == ["one"]


@pytest.mark.parametrize("given", ["no_such.cu", "no_such.cuh", "kernels/no_such.cu", "mistyped", Path("no_such.cpp")])
def test_a_missing_file_is_an_error_at_once(given: Any) -> None:
    with pytest.raises(errors.SourceNotFoundError, match="it is not there; looked for /") as caught:
        opsmith.cuda_source(given)
    assert str(Path(__file__).parent / given) in str(caught.value), "beside this file too"
    assert isinstance(caught.value, FileNotFoundError)


def test_a_directory_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(errors.SourceNotFoundError, match="it is not a file"):
        opsmith.cuda_source(tmp_path)


def test_a_line_of_text_is_text() -> None:
    assert opsmith.cuda_source("__global__ void k(float* x) { x[0] = 1; }").kernels == ["k"]


def test_nothing_is_compiled_and_nothing_imported_before_it_is_needed() -> None:
    code = f"""
import sys, torch
before = set(sys.modules)
import opsmith
cu = opsmith.cuda_source({SCALE!r})
kernels = cu.twice, cu["scale<float>"], repr(cu), dir(cu)
new = {{name.split(".")[0] for name in set(sys.modules) - before}}
assert not new & {{"triton", "numba", "cuda"}}, new
assert "cuda.bindings.nvrtc" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_second_process_starts_from_the_cache_without_nvrtc(own_cache: Path) -> None:
    """With a torch built for CUDA, whose version stands in for NVRTC's in the key."""
    code = f"""
import sys, torch
torch.version.cuda = "{find_nvrtc().version}"
import opsmith
cu = opsmith.cuda_source({SCALE!r})
print(cu.twice.compile("{ARCH}").attributes, cu["scale<float, 4>"].compile("{ARCH}").attributes)
print("cuda.bindings.nvrtc" in sys.modules)
"""
    first, second = (fresh_process.run(["-c", code], check=True).stdout.splitlines() for _ in range(2))
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("True", "False")


# --- kernels by name ------------------------------------------------------------------------------------------------


def test_kernels_are_listed_by_dir_and_repr() -> None:
    cu = opsmith.cuda_source(SCALE)
    assert {"scale", "twice", "thrice", "compile", "set_constant"} <= set(dir(cu))
    assert "scale<typename T, int N>, twice, thrice" in repr(cu)
    assert repr(cu.twice).startswith("<CUDA kernel twice(float* x, int n) of <cuda_source at test_cuda_source.py:")


def test_a_kernel_is_one_object_however_it_is_spelled() -> None:
    cu = opsmith.cuda_source(SCALE)
    assert cu.twice is cu.twice is cu["twice"] is cu[" twice "]
    assert cu["scale<float,4>"] is cu["scale< float , 4 >"] is cu["scale<float, 4>"]
    assert cu["scale<unsigned  int>"].name == "scale<unsigned int>"
    assert cu.instances == ["scale<float, 4>", "scale<unsigned int>"]


@pytest.mark.parametrize("name", ["nope", "ns::twice", "", "twice; int x", "scale<float", "a b", 'x"', 3])
def test_a_name_that_is_not_there_is_refused_with_those_that_are(name: Any) -> None:
    cu = opsmith.cuda_source(SCALE)
    with pytest.raises(errors.KernelNotFoundError, match="it has scale<typename T, int N>, twice, thrice") as caught:
        cu[name]
    assert isinstance(caught.value, KeyError) and isinstance(caught.value, AttributeError)


def test_an_attribute_that_is_not_there_is_refused_and_the_next_best_is_named() -> None:
    cu = opsmith.cuda_source(SCALE)
    with pytest.raises(AttributeError, match=r"Did you mean 'twice'\?"):
        cu.twise  # noqa: B018
    assert not hasattr(cu, "nope") and not hasattr(cu, "__wrapped__")


def test_a_template_without_arguments_is_refused_with_the_spelling() -> None:
    cu = opsmith.cuda_source(SCALE)
    for use in (lambda: cu.scale[1, 1], lambda: cu.scale.compile(ARCH)):
        with pytest.raises(errors.AmbiguousKernelError, match=r"is a template over typename T, int N = 2") as caught:
            use()
        assert "cu['scale<float, 4>']" in str(caught.value)


@pytest.mark.parametrize(
    ("spelling", "words"),
    [
        ("scale<floot>", 'identifier "floot" is undefined'),
        ("scale<>", "is not an instance of template <typename T, int N = 2>"),
        ("scale<float, 3, 4>", "is not an instance of"),
        ("scale<float, float>", "is not an instance of"),
        ("twice<float>", "the kernel is not a template"),
    ],
)
def test_template_arguments_that_do_not_fit_are_refused_with_the_compilers_message(spelling: str, words: str) -> None:
    cu = opsmith.cuda_source(SCALE)
    with pytest.raises(errors.AmbiguousKernelError, match=words):
        cu[spelling].compile(ARCH)


def test_kernels_in_namespaces_static_ones_and_those_of_headers_compile(tmp_path: Path) -> None:
    write(tmp_path / "more.cuh", "namespace more { __global__ void in_header(int* x) { *x = 1; } }\n")
    text = """
#include "more.cuh"
namespace a::b { namespace { struct Hidden { int v; }; __global__ void hidden(Hidden h, int* x) { *x = h.v; } } }
static __global__ void local(int* x) { *x = 2; }
"""
    cu = opsmith.cuda_source(write(tmp_path / "k.cu", text))
    assert set(cu.compile(ARCH).attributes) == {"a::b::hidden", "local", "more::in_header"}
    assert cu["more::in_header"].compile(ARCH).path == cu.compile(ARCH).path


def test_a_kernel_made_by_a_macro_is_taken_at_its_name() -> None:
    cu = opsmith.cuda_source("#define KERNEL(name) __global__ void name(float* x)\nKERNEL(made) { x[0] = 1; }\n")
    assert cu.kernels == []
    assert cu.made.compile(ARCH).attributes.registers > 0


def test_a_name_that_the_compiler_does_not_reach_is_refused_and_the_others_compile(own_cache: Path) -> None:
    cu = opsmith.cuda_source("#if 0\n__global__ void off(int* x) {}\n#endif\n__global__ void on(int* x) { *x = 1; }\n")
    assert set(cu.compile(ARCH).attributes) == {"on"}
    with pytest.raises(
        errors.KernelNotFoundError,
        match=r"it has on\. The compiler does not reach the one at .*:2: is it inside an #if\?",
    ):
        cu.off.compile(ARCH)


def test_what_is_not_a_kernel_is_refused() -> None:
    cu = opsmith.cuda_source(
        "__device__ int helper(int x) { return x; }\n__global__ void k(int* x) { *x = helper(1); }\n"
    )
    with pytest.raises(errors.KernelNotFoundError, match="no __global__ kernel 'helper'; it has k"):
        cu.helper.compile(ARCH)


def test_an_overloaded_kernel_is_refused_and_the_others_compile(own_cache: Path) -> None:
    cu = opsmith.cuda_source("__global__ void k(int*) {}\n__global__ void k(float*) {}\n__global__ void other() {}\n")
    with pytest.raises(errors.AmbiguousKernelError, match="several kernels named k"):
        cu.k.compile(ARCH)
    assert set(cu.compile(ARCH).attributes) == {"other"}


def test_instances_are_refused_where_kernels_share_variables() -> None:
    text = "__device__ int counter;\n__device__ const int limit = 3;\ntemplate <class T> __global__ void k(T* x) {}\n"
    with pytest.raises(
        errors.AmbiguousKernelError, match=r"variables that kernels may write: counter\. .*\nPass a tensor"
    ):
        opsmith.cuda_source(text)["k<float>"]
    assert opsmith.cuda_source(text.replace("__device__ int counter", "__device__ const int counter"))["k<float>"]


# --- compiling ------------------------------------------------------------------------------------------------------


def test_a_source_compiles_without_a_gpu_once(compilations: Callable[[], int]) -> None:
    cu = opsmith.cuda_source(SCALE)
    compiled = cu.compile(arch=ARCH)
    assert Path(compiled).read_bytes()[:4] == b"\x7fELF" and compiled.path == Path(compiled) and compiled.arch == ARCH
    assert set(compiled.attributes) == {"twice", "thrice"}
    assert cu.compile(ARCH) == compiled == opsmith.cuda_source(SCALE).compile(ARCH)
    assert compilations() == 1
    instance = cu["scale<float>"].compile(ARCH)
    assert instance.path != compiled.path and compilations() == 2
    assert cu["scale<float>"].compile("sm_80").path != instance.path


def test_without_a_gpu_an_architecture_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    cu = opsmith.cuda_source(SCALE)
    for compile in (cu.compile, cu.twice.compile):
        with pytest.raises(errors.NoGpuError, match=r'no GPU to take it from.\nGive one: compile\(arch="sm_90"\)'):
            compile()
    with pytest.raises(errors.NoGpuError, match=r"compile\(arch=\"sm_90\"\).attributes"):
        cu.twice.attributes  # noqa: B018
    with pytest.raises(errors.NoGpuError, match="twice cannot be launched"):
        cu.twice[1, 1](None, 3)
    with pytest.raises(errors.NoGpuError, match="cannot be set"):
        cu.set_constant("x", 1)
    with pytest.raises(errors.UnsupportedArchError, match="it supports"):
        cu.compile(arch="sm_1")


def test_an_architecture_among_the_options_is_taken() -> None:
    cu = opsmith.cuda_source(SCALE, options=["-arch=sm_80"])
    assert cu.compile().arch == "sm_80" and cu.compile(arch="sm_90").arch == "sm_90"


def test_defines_options_and_include_directories_reach_the_compiler(tmp_path: Path) -> None:
    write(tmp_path / "far" / "far.h", "#define FAR 1\n")
    write(tmp_path / "further" / "further.h", "#define FURTHER 1\n")
    write(tmp_path / "before.h", "#define BEFORE 1\n")
    text = """
#include <far.h>
#include <further.h>
#include <opsmith/pointwise/cuda_types.h>
static_assert(FAR && FURTHER && BEFORE && COUNT == 3 && FLAG == 1 && __cplusplus == 201703L, "all of them");
#ifndef BARE
#error no BARE
#endif
__global__ void k(opsmith::float16* x) {}
"""
    cu = opsmith.cuda_source(
        text,
        options=["-std=c++17", f"-I{tmp_path / 'further'}", f"--pre-include={tmp_path / 'before.h'}"],
        include_dirs=[tmp_path / "far"],
        defines={"COUNT": 3, "FLAG": True, "BARE": None},
    )
    assert set(cu.compile(ARCH).attributes) == {"k"}
    assert opsmith.cuda_source(text, defines={"COUNT": 4}) != cu


def test_attributes_need_no_gpu() -> None:
    text = """
__constant__ float table[6];
__global__ void __launch_bounds__(256) plain(float* x) { __shared__ float s[64]; s[threadIdx.x % 64] = x[0];
  __syncthreads(); x[threadIdx.x] = s[63 - threadIdx.x % 64] + table[threadIdx.x % 6]; }
__global__ void local(float* x, int n) { float a[100]; for (int i = 0; i < 100; ++i) a[i] = x[i];
  for (int i = 0; i < n; ++i) a[(i * 7 + n) % 100] += a[i % 100]; for (int i = 0; i < 100; ++i) x[i] = a[i]; }
__global__ void __launch_bounds__(1024) spilling(float* x) { float a[90];
#pragma unroll
  for (int i = 0; i < 90; ++i) a[i] = x[i * 1024 + threadIdx.x];
#pragma unroll
  for (int j = 0; j < 90; ++j)
#pragma unroll
    for (int i = 0; i < 90; ++i) a[i] = a[i] * a[(i + j) % 90] + 1.0f;
#pragma unroll
  for (int i = 0; i < 90; ++i) x[i * 1024 + threadIdx.x] = a[i]; }
__global__ void greedy(double* x) { double a[60];
#pragma unroll
  for (int i = 0; i < 60; ++i) a[i] = x[i * 64 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 60; ++i) x[i * 64 + threadIdx.x] = a[(i + 7) % 60] + a[59 - i]; }
"""
    for arch in ("sm_75", "sm_90", "sm_120"):
        attributes = opsmith.cuda_source(text).compile(arch).attributes
        assert attributes["plain"].shared_bytes == 256
        assert attributes["plain"].max_threads_per_block == 256
        assert attributes["plain"].constant_bytes == 24
        assert 0 < attributes["plain"].registers < 64
        assert attributes["local"].local_bytes >= 400 and attributes["local"].spill_bytes == 0
        assert attributes["spilling"].spill_bytes > 0 and attributes["spilling"].registers <= 64
        assert attributes["spilling"].max_threads_per_block == 1024
        greedy = attributes["greedy"]
        assert greedy.registers > 64 and greedy.max_threads_per_block < 1024
        assert greedy.max_threads_per_block % 128 == 0
        assert greedy.registers * greedy.max_threads_per_block <= 65536


@pytest.mark.parametrize(
    ("registers", "threads"), [(1, 1024), (64, 1024), (65, 896), (96, 640), (128, 512), (168, 384), (255, 256)]
)
def test_the_largest_block_is_what_the_registers_allow(registers: int, threads: int) -> None:
    """By NVIDIA's occupancy rule: 65536 registers, given out 256 to a warp, to 4 warps at a time."""
    assert _threads_with(registers) == threads


# --- edits ----------------------------------------------------------------------------------------------------------


def test_an_edit_of_the_file_or_of_a_header_is_noticed(tmp_path: Path, compilations: Callable[[], int]) -> None:
    path = write(tmp_path / "k.cu", '#include "value.h"\n__global__ void k(int* x) { *x = VALUE; }\n')
    header = write(tmp_path / "value.h", '#include "deep/er.h"\n')
    deeper = write(tmp_path / "deep" / "er.h", "#define VALUE 1\n")
    cu = opsmith.cuda_source(path)
    paths = [cu.compile(ARCH).path]
    deeper.write_text("#define VALUE 2\n")
    paths.append(cu.compile(ARCH).path)
    header.write_text("#define VALUE 3\n")
    paths.append(cu.compile(ARCH).path)
    path.write_text("__global__ void k(int* x) { *x = 4; }\n__global__ void new_one() {}\n")
    assert cu.new_one.compile(ARCH).path not in paths
    assert len(set(paths)) == 3 and compilations() == 4
    path.write_text('#include "value.h"\n__global__ void k(int* x) { *x = VALUE; }\n')
    assert cu.compile(ARCH).path == paths[-1] and compilations() == 4, "what it was before is still there"
    with pytest.raises(errors.KernelNotFoundError):
        cu["new_one"].compile(ARCH)


def test_edits_in_quick_succession_are_all_noticed(tmp_path: Path) -> None:
    """Two edits within a tick of the clock, of one length: the file's time does not tell them apart."""
    path = write(tmp_path / "k.cu", "")
    header = write(tmp_path / "value.h", "")
    cu = opsmith.cuda_source(path, include_dirs=[tmp_path])
    now = time.time_ns()
    for number in range(10, 30):
        path.write_text(f'#include "value.h"\n__global__ void k{number}() {{}}\n')
        header.write_text(f"__global__ void h{number % 15 + 10}() {{}}\n")
        for file in (path, header):
            os.utime(file, ns=(now + 10**10, now + 10**10))  # a time that no file has settled at
        assert cu.kernels == [f"k{number}", f"h{number % 15 + 10}"]


def test_a_touched_file_compiles_nothing(tmp_path: Path, compilations: Callable[[], int]) -> None:
    path = write(tmp_path / "k.cu", SCALE)
    cu = opsmith.cuda_source(path)
    cu.compile(ARCH)
    module = cu._module(None, ARCH)
    os.utime(path, (1, 1))
    cu.compile(ARCH)
    assert cu._module(None, ARCH) is module and compilations() == 1


def test_a_file_that_vanishes_is_an_error_and_one_that_comes_back_is_used(tmp_path: Path) -> None:
    path = write(tmp_path / "k.cu", SCALE)
    cu = opsmith.cuda_source(path)
    cu.compile(ARCH)
    path.unlink()
    with pytest.raises(errors.SourceNotFoundError, match=r"k\.cu of opsmith\.cuda_source cannot be read"):
        cu.compile(ARCH)
    assert "cannot be read" in repr(cu) and "compile" in dir(cu)
    write(path, SCALE)
    assert cu.compile(ARCH).path.is_file()


def test_a_header_saved_while_it_is_compiled_does_not_poison_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    path = write(tmp_path / "k.cu", '#include "value.h"\n__global__ void k(int* x) { *x = VALUE; }\n')
    header = write(tmp_path / "value.h", "#define VALUE 1\n")
    real, edits = nvrtc_module._compile, [2]

    def saved_meanwhile(*arguments: Any) -> Any:
        if edits:
            header.write_text(f"#define VALUE {edits.pop()}\n")
        return real(*arguments)

    expected = {}
    for value in (1, 2):
        header.write_text(f"#define VALUE {value}\n")
        expected[value] = opsmith.cuda_source(path).compile(ARCH).path.read_bytes()
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "another"))
    header.write_text("#define VALUE 1\n")
    monkeypatch.setattr(nvrtc_module, "_compile", saved_meanwhile)
    assert opsmith.cuda_source(path).compile(ARCH).path.read_bytes() == expected[2]
    header.write_text("#define VALUE 1\n")
    assert opsmith.cuda_source(path).compile(ARCH).path.read_bytes() == expected[1]


# --- what the compiler says -----------------------------------------------------------------------------------------


def test_an_error_in_a_file_shows_the_file_the_line_and_the_compilers_words(tmp_path: Path) -> None:
    path = write(tmp_path / "k.cu", "__global__ void k(float* x) {\n  x[0] = undeclared;\n}\n")
    with pytest.raises(errors.CompileError) as caught:
        opsmith.cuda_source(path).k.compile(ARCH)
    lines = str(caught.value).splitlines()
    where = lines.index(f'  {path}:2: error: identifier "undeclared" is undefined')
    assert lines[where + 1].strip() == "x[0] = undeclared;"
    assert lines[where + 2].index("^") == lines[where + 1].index("undeclared")
    assert "could not compile k.cu" in lines[0]


def test_an_error_in_a_template_says_which_instance(tmp_path: Path) -> None:
    path = write(tmp_path / "k.cu", "template <class T>\n__global__ void k(T* x) {\n  x[0].missing();\n}\n")
    with pytest.raises(errors.CompileError, match=rf"{path}:3: error: .*float") as caught:
        opsmith.cuda_source(path)["k<float>"].compile(ARCH)
    assert "k<float> of k.cu" in str(caught.value) and "[with T=float]" in caught.value.log


def test_an_error_in_a_text_is_placed_at_its_line_of_the_python_file() -> None:
    cu = opsmith.cuda_source("""
__global__ void k(float* x) {
  x[0] = undeclared_in_text;
}
""")
    with pytest.raises(errors.CompileError) as caught:
        cu.k.compile(ARCH)
    line = next(
        n for n, each in enumerate(Path(__file__).read_text().splitlines(), 1) if "= undeclared_in_text" in each
    )
    assert f'{__file__}:{line}: error: identifier "undeclared_in_text" is undefined' in str(caught.value)
    assert "could not compile <cuda_source at test_cuda_source.py:" in str(caught.value)


def test_an_error_in_a_text_that_was_put_together_shows_the_text() -> None:
    text = "\n".join(["__global__ void k(float* x) {", "  x[0] = never_declared;", "}"])
    cu = opsmith.cuda_source(text)
    with pytest.raises(errors.CompileError) as caught:
        cu.k.compile(ARCH)
    assert f'{cu.label}:2: error: identifier "never_declared" is undefined' in str(caught.value)
    assert "x[0] = never_declared;" in str(caught.value)
    assert cu.label.startswith("<cuda_source at test_cuda_source.py:")


def test_of_several_places_with_the_text_the_last_before_the_call_is_named(tmp_path: Path) -> None:
    literal = '"""\n__global__ void k() {\n  nope;\n}\n"""'
    script = write(
        tmp_path / "user.py",
        f"import opsmith\nA = {literal}\nB = {literal}\ncu = opsmith.cuda_source(B)\nC = {literal}\n"
        f"try:\n    cu.compile({ARCH!r})\nexcept opsmith.OpsmithError as error:\n    print(error)\n",
    )
    said = fresh_process.run([str(script)], check=True).stdout
    assert f"{script}:9: error" in said


def test_moving_a_text_within_its_file_recompiles_nothing(tmp_path: Path, own_cache: Path) -> None:
    code = f'import opsmith\ncu = opsmith.cuda_source("""\n{SCALE}""")\nprint(cu.compile({ARCH!r}).path)\n'
    paths = set()
    for above in ("", "# a comment\n\n\n"):
        script = write(tmp_path / "user.py", above + code)
        paths.add(fresh_process.run([str(script)], check=True).stdout)
    assert len(paths) == 1


def test_headers_beside_the_python_file_are_found_by_a_text(tmp_path: Path) -> None:
    write(tmp_path / "beside.h", "#define BESIDE 1\n")
    script = write(
        tmp_path / "user.py",
        "import opsmith\n"
        'cu = opsmith.cuda_source("""#include "beside.h"\n__global__ void k(int* x) { *x = BESIDE; }""")\n'
        f"print(cu.compile({ARCH!r}).path)",
    )
    fresh_process.run([str(script)], cwd="/", check=True)


def test_a_missing_brace_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "k.cu", "__global__ void k(float* x) {\n  x[0] = 1;\n")
    with pytest.raises(errors.CompileError, match=r'expected a "}"'):
        opsmith.cuda_source(path).compile(ARCH)


def test_a_missing_header_is_an_error() -> None:
    with pytest.raises(errors.CompileError, match=r'cannot open source file "no_such\.h"'):
        opsmith.cuda_source('#include "no_such.h"\n__global__ void k() {}\n').compile(ARCH)


# --- identity -------------------------------------------------------------------------------------------------------


def test_copies_and_pickles_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "k.cu", SCALE)
    monkeypatch.chdir(tmp_path)
    from_file = opsmith.cuda_source("k.cu", options=["--use_fast_math"], defines={"A": 1}, include_dirs=["."])
    monkeypatch.chdir("/")
    for cu in (from_file, opsmith.cuda_source(SCALE)):
        for other in (copy.copy(cu), copy.deepcopy(cu), pickle.loads(pickle.dumps(cu))):
            assert isinstance(other, CudaSource) and other is not cu
            assert other == cu and hash(other) == hash(cu) and other.kernels == cu.kernels
            assert other.compile(ARCH) == cu.compile(ARCH)
        assert pickle.loads(pickle.dumps(cu.twice)) == cu.twice
        assert copy.deepcopy(cu["scale<float>"]).name == "scale<float>"
    assert from_file != opsmith.cuda_source(tmp_path / "k.cu")
    assert opsmith.cuda_source(SCALE) != opsmith.cuda_source(SCALE + " ")


def test_errors_survive_pickling() -> None:
    cu = opsmith.cuda_source(SCALE)
    for use in (lambda: cu.nope, lambda: cu.scale[1, 1], lambda: cu.twice[0, 1]):
        with pytest.raises(opsmith.OpsmithError) as caught:
            use()
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value) and str(again) == str(caught.value)


def test_threads_that_ask_at_once_compile_once(compilations: Callable[[], int]) -> None:
    cu = opsmith.cuda_source(SCALE)
    found: list[Any] = []
    barrier = threading.Barrier(4)

    def ask() -> None:
        barrier.wait()
        found.append((cu.twice, cu["scale<float>"].compile(ARCH), cu.compile(ARCH)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(str, found))) == 1 and len({id(kernel) for kernel, _, _ in found}) == 1
    assert compilations() == 2


@pytest.mark.timing
def test_a_changed_file_compiles_in_less_than_half_a_second(tmp_path: Path, own_cache: Path) -> None:
    """Of the half second between saving a .cu and its result on a GPU, all but the launch."""
    path = write(tmp_path / "k.cu", SCALE)
    cu = opsmith.cuda_source(path)
    cu.compile(ARCH)  # imports NVRTC
    taken = []
    for number in range(5):
        write(path, SCALE.replace("x[threadIdx.x] *= 2", f"x[threadIdx.x] *= {number + 3}"))
        start = time.perf_counter()
        attributes = cu.twice.compile(ARCH).attributes
        taken.append(time.perf_counter() - start)
        assert isinstance(attributes, Attributes)
    assert sorted(taken)[2] < 0.4, taken
