"""A CudaSource in the emulator is compiled as NVRTC would do it: its options, its headers, its kernels' spellings."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.errors import (
    AmbiguousKernelError,
    CompileError,
    EmulationError,
    KernelFault,
    KernelNotFoundError,
    UnsupportedFeatureError,
)

VALUE = "__global__ void k(int* x) { x[0] = V; }\n"


def launched(cu: opsmith.CudaSource, name: str = "k") -> int:
    x = torch.zeros(1, dtype=torch.int32)
    with opsmith.emulate():
        cu[name][1, 1](x)
    return int(x)


# --- Options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ["-DV=2"], ["-D", "V=2"], ["-D V=2"], ["-D=V=2"], ["--define-macro=V=2"], ["--define-macro", "V=2"],
        ["-DV=1", "-UV", "-DV=2"], ["-D", "V=1", "-U", "V", "--define-macro", "V=2"],
        ["-D", "V=1", "--undefine-macro=V", "-D=V=2"], ["-DW=2", "-DV=W"], "-DV=2",
    ],
    ids=str,
)  # fmt: skip
def test_macros_may_be_given_in_any_spelling(options: list[str] | str) -> None:
    assert launched(opsmith.cuda_source(VALUE, options=options)) == 2


def test_a_macro_without_a_value_is_1_and_an_undefined_one_is_not_a_macro() -> None:
    text = "#ifdef V\n" + VALUE + "#else\n__global__ void k(int* x) { x[0] = -1; }\n#endif\n"
    assert launched(opsmith.cuda_source(text, options=["-D", "V"])) == 1
    assert launched(opsmith.cuda_source(text, options=["-DV", "-U", "V"])) == -1
    assert launched(opsmith.cuda_source(text, options=["-UV"], defines={"V": 7})) == 7


@pytest.mark.parametrize("spelling", ["-I{0}", "-I={0}", "-I|{0}", "--include-path={0}", "--include-path|{0}"])
def test_headers_are_found_where_options_say(spelling: str, tmp_path: Path) -> None:
    (tmp_path / "values.h").write_text("#define V 5\n")
    options = spelling.format(tmp_path).split("|")
    assert launched(opsmith.cuda_source('#include "values.h"\n' + VALUE, options=options)) == 5
    assert launched(opsmith.cuda_source("#include <values.h>\n" + VALUE, options=options)) == 5


@pytest.mark.parametrize("spelling", ["-include={0}", "-include|{0}", "--pre-include={0}", "--pre-include|{0}"])
def test_a_header_that_an_option_includes_comes_first_and_its_edits_are_noticed(spelling: str, tmp_path: Path) -> None:
    (tmp_path / "values.h").write_text("#define V 5\n")
    cu = opsmith.cuda_source(VALUE, options=spelling.format("values.h").split("|"), include_dirs=tmp_path)
    assert launched(cu) == 5
    (tmp_path / "values.h").write_text("#define V 66\n")
    assert launched(cu) == 66


def test_options_for_gpu_code_only_change_nothing() -> None:
    options = ["--use_fast_math", "-maxrregcount=32", "-maxrregcount", "32", "--std=c++17", "-lineinfo", "--fmad=false"]
    assert launched(opsmith.cuda_source(VALUE, options=[*options, "-DV=2", "-arch=sm_90"])) == 2


# --- Headers ----------------------------------------------------------------------------------------------------------


def test_headers_may_have_all_that_a_source_may(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "reverse.cuh").write_text(
        '#pragma once\n#include "deep/factor.cuh"\n'
        "__device__ inline int reversed(int value) {\n"
        "  extern __shared__ int all[];\n"
        "  all[threadIdx.x] = value;\n  __syncthreads();\n"
        "  return factor[0] * all[blockDim.x - 1 - threadIdx.x];\n}\n"
    )
    (tmp_path / "deep" / "factor.cuh").write_text("#pragma once\n__constant__ int factor[1] = {3};\n")
    cu = opsmith.cuda_source(
        '#include "reverse.cuh"\n__global__ void k(int* x) { x[threadIdx.x] = reversed(x[threadIdx.x]); }\n',
        include_dirs=tmp_path,
    )
    x = torch.arange(4, dtype=torch.int32)
    with opsmith.emulate():
        cu.k[1, 4, 16](x)
        cu.set_constant("factor", [10])
        assert x.tolist() == [9, 6, 3, 0]
        with pytest.raises(KernelFault) as caught:
            cu.k[1, 4, 12](x)
    assert caught.value.file == str(tmp_path / "reverse.cuh") and caught.value.line in (5, 7)


def test_the_directory_of_cudas_own_headers_may_be_named_too(tmp_path: Path) -> None:
    (tmp_path / "cuda_fp16.h").write_text("#error NVIDIA's\n")
    (tmp_path / "values.h").write_text("#define V 5\n")
    text = (
        '#include <cuda_fp16.h>\n#include "values.h"\n__global__ void k(int* x) { x[0] = __half2int_rn(__half(V)); }\n'
    )
    assert launched(opsmith.cuda_source(text, include_dirs=tmp_path)) == 5


# --- Spellings --------------------------------------------------------------------------------------------------------

KERNELS = opsmith.cuda_source(r"""
template <typename T> __global__ void scale(T* x) { x[0] *= 2; }
template <typename T, int N> __global__ void many(T* x) { x[0] = N; }
template <int N> __global__ void large(int* x) { static_assert(N > 2, "too small"); x[0] = N; }
__global__ void twice(float* x) {}
__global__ void twice(int* x) {}
#if 0
__global__ void absent(int* x) {}
#endif
__global__ void present(int* x) { x[0] = 3; }
namespace inner { template <class T> __global__ void of_namespace(T* x) { x[0] = 4; } }
""")


@pytest.mark.parametrize(
    ("spelling", "words"),
    [
        ("scale<int, 4>", "scale<int, 4> of .* is not an instance of template <typename T>"),
        ("many<float>", "many<float> of .* is not an instance of template <typename T, int N>"),
        ("many<4, 4>", r"is not an instance of template <typename T, int N>.\nWrite.*many<float, 4>"),
        ("scale<unheard_of>", 'cannot be compiled: identifier "unheard_of" is undefined'),
        ("scale<__half>", 'cannot be compiled: identifier "__half" is undefined'),
        ("inner::of_namespace<unheard_of>", "inner::of_namespace<unheard_of> of .* cannot be compiled"),
    ],
)
def test_a_bad_template_argument_is_reported_with_the_launchs_spelling(spelling: str, words: str) -> None:
    with pytest.raises(AmbiguousKernelError, match=words) as caught:
        launched(KERNELS, spelling)
    assert "<opsmith>" not in str(caught.value)


def test_an_instance_that_the_author_forbids_is_reported_with_the_authors_line() -> None:
    with pytest.raises(CompileError, match="static assertion failed: too small") as caught:
        launched(KERNELS, "large<2>")
    assert "<opsmith>" not in str(caught.value).partition("Command:")[0]


def test_overloads_and_kernels_behind_an_if_are_reported_and_the_others_run() -> None:
    with pytest.raises(AmbiguousKernelError, match="several kernels named twice"):
        launched(KERNELS, "twice")
    with pytest.raises(KernelNotFoundError, match=r"no __global__ kernel 'absent'.*inside an #if\?"):
        launched(KERNELS, "absent")
    assert launched(KERNELS, "present") == 3
    assert launched(KERNELS, "many<int, 9>") == 9
    assert launched(KERNELS, "inner::of_namespace<int>") == 4


def test_a_constant_behind_an_if_is_not_there_and_the_others_are() -> None:
    cu = opsmith.cuda_source(r"""
#if 0
__constant__ float table[4];
#endif
__constant__ int value;
__global__ void k(int* x) { x[0] = value; }
""")
    with opsmith.emulate(), pytest.raises(opsmith.errors.ConstantError, match="its constants are: value"):
        cu.set_constant("table", [1.0, 2.0, 3.0, 4.0])
    with opsmith.emulate():
        cu.set_constant("value", 5)
    assert launched(cu) == 5


# --- Pointers to pointers ---------------------------------------------------------------------------------------------


def test_a_tensor_of_addresses_is_refused_with_checks_and_runs_without() -> None:
    cu = opsmith.cuda_source("__global__ void gather(float* const* rows, float* y) { y[0] = rows[1][2]; }\n")
    rows = [torch.arange(4.0), torch.arange(10.0, 14.0)]
    addresses, y = torch.tensor([row.data_ptr() for row in rows]), torch.zeros(1)
    with (
        opsmith.emulate(),
        pytest.raises(EmulationError, match=r"'rows' \(float\* const\*\) leads to further pointers"),
    ):
        cu.gather[1, 1](addresses, y)
    with opsmith.emulate(checks=False):
        cu.gather[1, 1](addresses, y)
    assert y.item() == 12
    absent = opsmith.cuda_source("__global__ void k(float** rows, int* x) { x[0] = rows == nullptr; }\n")
    x = torch.zeros(1, dtype=torch.int32)
    with opsmith.emulate():
        absent.k[1, 1](None, x)
    assert x.item() == 1


# --- Lines ------------------------------------------------------------------------------------------------------------


def test_a_refusal_names_the_line_of_the_python_file_that_contains_the_text() -> None:
    cu = opsmith.cuda_source(r"""
__global__ void k(int* x) {
  asm volatile("bar.sync 1;");  // here
}
""")
    other = opsmith.cuda_source(r"""
__global__ void k(int* x) {
  __barrier_sync(1);  // and here
}
""")
    lines = Path(__file__).read_text().splitlines()
    for source, mark in ((cu, "  // here"), (other, "// and here")):
        with pytest.raises(UnsupportedFeatureError) as caught:
            launched(source)
        assert lines[caught.value.line - 1].endswith(mark)
        assert pickle.loads(pickle.dumps(caught.value)).line == caught.value.line


def test_a_shared_variable_may_be_aligned_before_or_behind_the_word() -> None:
    for words in ("__shared__ alignas(16)", "alignas(16) __shared__", "__shared__ __align__(16)"):
        source = opsmith.cuda_source(
            f"__global__ void turned(float* y) {{ {words} float kept[4]; kept[threadIdx.x] = threadIdx.x;\n"
            "  __syncthreads(); y[threadIdx.x] = kept[3 - threadIdx.x]; }\n"
        )
        y = torch.zeros(4)
        with opsmith.emulate():
            source.turned[1, 4](y)
        assert y.tolist() == [3.0, 2.0, 1.0, 0.0]


def test_what_nothing_ever_writes_is_uninitialised_too() -> None:
    source = opsmith.cuda_source(
        "__global__ void unset(float* y) {\n  __shared__ float kept[4];\n  y[threadIdx.x] = kept[threadIdx.x];\n}\n"
    )
    with opsmith.emulate(), pytest.raises(opsmith.KernelFault, match="uninitialised shared memory"):
        source.unset[1, 4](torch.zeros(4))


def test_a_cache_that_is_cleared_meanwhile_is_filled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))
    for number in range(2):
        text = f"__global__ void put(int* x) {{ *x = {number} + 5; }}"
        x = torch.zeros(1, dtype=torch.int32)
        with opsmith.emulate():
            opsmith.cuda_source(text).put[1, 1](x)
        assert x.item() == number + 5
        opsmith.toolchain.clear()


def test_a_fault_after_an_edit_shows_the_edited_line(tmp_path: Path) -> None:
    path = tmp_path / "edited.cu"
    for index in (5, 6):
        path.write_text(f"__global__ void store(float* x) {{\n  x[{index}] = 0.0f;\n}}\n")
        with opsmith.emulate(), pytest.raises(opsmith.KernelFault) as caught:
            opsmith.cuda_source(path).store[1, 1](torch.zeros(5))
        assert f"\n    x[{index}] = 0.0f;" in str(caught.value)
