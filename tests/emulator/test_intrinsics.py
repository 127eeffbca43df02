"""CUDA's device functions in the emulator: every one that the headers declare is there, or refused by name."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.emulator import refused
from opsmith.errors import NvccNotFoundError, NvrtcNotFoundError, UnsupportedFeatureError
from opsmith.toolchain import find_nvrtc
from opsmith.toolchain.find import nvcc_include_dirs

from . import cuda_functions
from .cuda_functions import CALLED, Function
from .header_harness import compile_text

# --- Every function is there, or refused -----------------------------------------------------------------------------

_ARGUMENTS = {
    "mask": "0xffffffffu", "width": "32", "predicate": "1", "cudaRoundMode": "cudaRoundZero", "float": "0.5f",
    "double": "0.5", "long double": "0.5L", "bool": "true", "const char*": '"1"', "size_t": "16",
    "int": "3", "unsigned": "3u", "long": "3L",
}  # fmt: skip
FUNCTIONS = cuda_functions.functions()
A_KERNEL = 10  # names: the compiler's time grows faster than a kernel does

PRELUDE = """#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
template <class T> __device__ T ones() { T made; memset(&made, 1, sizeof(T)); return made; }
"""


def call(function: Function) -> str:
    """A statement that calls a function, holds its type against the table's and keeps what it gives."""
    given = [
        _ARGUMENTS.get(kind) or (f"({kind})(memory + {64 * i})" if kind.endswith("*") else f"ones<{kind}>()")
        for i, kind in enumerate(function.parameters)
    ]
    expression = f"{function.name}({', '.join(given)})"
    if function.result == "void":
        return f"  {expression};\n"
    return (
        f"  static_assert(Same<decltype({expression}), {function.result}>::value, "
        f'"{function.result} {function.name}");\n'
        f"  *({function.result}*)result = {expression};\n"
    )


def calls(without: Collection[str] = ()) -> str:
    """Kernels that call every function there is."""
    by_name: dict[str, str] = {}
    for each in FUNCTIONS:
        by_name[each.name] = by_name.get(each.name, "") + call(each)
    by_name |= {name: f"  {{ {statement} }}\n" for name, statement in CALLED.items()}
    statements = [statement for name, statement in by_name.items() if name not in without]
    kernels = [
        f"__global__ void calls_{start // A_KERNEL}(unsigned char* out, unsigned char* given) {{\n"
        "  unsigned char *result = out + 64 * threadIdx.x, *memory = given + 256 * threadIdx.x;\n"
        f"{''.join(statements[start : start + A_KERNEL])}}}\n"
        for start in range(0, len(statements), A_KERNEL)
    ]
    return PRELUDE + "".join(kernels)


def test_every_function_that_cuda_declares_can_be_called_and_has_cudas_type() -> None:
    cu = opsmith.cuda_source(calls())
    assert len(cu.kernels) * A_KERNEL >= 950
    out, given = torch.zeros(64 * 32, dtype=torch.uint8), torch.zeros(256 * 32, dtype=torch.uint8)
    with opsmith.emulate():
        for name in cu.kernels:
            given.zero_()
            cu[name][1, 32](out, given)


# What nvcc's headers have and NVRTC's own do not, or with another type.
_OF_NVCC_ALONE = {
    "signbit", "isfinite", "isnan", "isinf", "cudaGridDependencySynchronize", "cudaTriggerProgrammaticLaunchCompletion",
    "make_long4_16a", "make_long4_32a", "make_ulong4_16a", "make_ulong4_32a", "__assert_fail",
}  # fmt: skip


def test_the_table_of_functions_is_right_to_nvidias_compiler() -> None:
    try:
        find_nvrtc()
    except NvrtcNotFoundError as error:
        pytest.skip(f"NVRTC is not installed: {error}")
    assert opsmith.cuda_source(calls(without=_OF_NVCC_ALONE)).compile(arch="sm_100").attributes


# What the headers keep to themselves: parts of other functions, operators of classes, and words that look like names.
_INTERNAL = re.compile(
    r"__\w+_impl|__internal_\w+|__\w+_internal|__\w+_simpl_\w+|__\w+Atomic\w+|__cmath_power|__pow_helper"
    r"|__half|__half2?_raw|__nv_bfloat162?|__nv_bfloat162?_raw|char|short|int|long|float|throw|deprecated|target_description"
)
_DECLARED = re.compile(r"([A-Za-z_]\w*)\s*\((?!\()")
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)|noexcept\s*\([^)]*\)")


def test_the_table_has_every_function_of_the_headers() -> None:
    try:
        directories = nvcc_include_dirs()
    except NvccNotFoundError as error:
        pytest.skip(f"nvcc, and so its headers, are not installed: {error}")
    declared = _declared_names(directories)
    assert len(declared) > 1000
    known = {each.name for each in FUNCTIONS} | CALLED.keys()
    missing = {
        name
        for name in declared - known
        if not _INTERNAL.fullmatch(name) and (refused.feature_of(name) or _UNNAMED).startswith(_UNNAMED)
    }
    assert not missing, f"declared by CUDA, and neither emulated nor refused: {sorted(missing)}"


_UNNAMED = "names that opsmith's headers do not have"


def _declared_names(directories: Sequence[Path]) -> set[str]:
    """The functions for device code that a kernel finds without including anything, or with the half types' headers."""
    text = "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    macros = ["__CUDACC__", "__NVCC__", "__CUDA_ARCH__=1000", "__CUDACC_VER_MAJOR__=13", "__CUDACC_VER_MINOR__=0"]
    command = ["g++", "-E", "-x", "c++", "-", *(f"-D{macro}" for macro in macros)]
    command += [f"-isystem{part}" for each in directories for part in (each, each / "cccl")]
    found = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    roots = tuple(str(root) for each in directories for root in (each, each.resolve()))  # g++ names either
    names: set[str] = set()
    pending, depth, is_cudas = "", 0, False
    for line in found.splitlines():
        if line.startswith("#"):
            is_cudas = is_cudas if (place := re.match(r'# \d+ "([^"]*)"', line)) is None else place[1].startswith(roots)
            continue
        for letter in line + " " if is_cudas else "":
            if depth:
                depth += (letter == "{") - (letter == "}")
            elif letter in ";{}":
                head = _ATTRIBUTE.sub(" ", pending)
                if "device" in pending and (name := _DECLARED.search(head)) and "template" not in head:
                    names.add(name[1])
                opens_scope = re.fullmatch(r'\s*(?:extern\s+"C(?:\+\+)?"|namespace\b.*)\s*', pending)
                depth = int(letter == "{" and opens_scope is None)
                pending = ""
            else:
                pending += letter
    return names


# What the headers declare and the emulator does not have, by a name or two of each kind and what it is called.
REFUSED = {
    "textures and surfaces": "tex1Dfetch tex2D tex2DLayeredGrad tex3DLod texCubemap surf2Dread surfCubemapwrite",
    "copies to several blocks of a cluster": "__cluster_map_shared_multicast",
    "whether a launch has clusters": "__clusterDimIsSpecified",
    "named barriers": "__barrier_sync __barrier_sync_count",
    "operations of a warp without a mask": "__any __all __ballot any all ballot __shfl __shfl_xor",
    "asynchronous copies": "__nv_memcpy_async_shared_global_4 __nv_memcpy_async_shared_global_16",
    "access properties": "__nv_associate_access_property",
    "the place of parameters": "__isGridConstant",
    "atomic operations with orders and scopes": "__nv_atomic_fetch_add __nv_atomic_load_n",
    "128-bit floating-point numbers": "__nv_fp128_sqrt __nv_fp128_fma",
    "the CUDA runtime's functions": "cudaMalloc cudaMemcpyAsync cudaLaunchDevice cudaGetParameterBufferV2 "
    "cudaCGSynchronize __cudaCDP2Malloc cudaGraphSetConditional",
    "the CUDA driver's functions": "cuLaunchKernel cuMemAlloc",
    "names that opsmith's headers do not have": "__no_such_function",
}


@pytest.mark.parametrize("feature", REFUSED)
def test_a_function_that_is_not_emulated_is_refused_by_name_and_line(feature: str) -> None:
    names = REFUSED[feature].split()
    text = "".join(f"__global__ void kernel_{name}(int* x) {{\n  {name}(x[0]);\n}}\n" for name in names)
    compiled = compile_text(text, "-fsyntax-only")
    for number, name in enumerate(names):
        assert f"<stdin>:{3 * number + 2}:" in compiled.stderr, f"{name} is there after all"
        assert refused.feature_of(name) == f"{_whole(feature)} ({name})"
    cu = opsmith.cuda_source(text)
    with opsmith.emulate(), pytest.raises(UnsupportedFeatureError) as caught:
        cu[f"kernel_{names[0]}"][1, 1](torch.zeros(1, dtype=torch.int32))
    assert caught.value.feature == f"{_whole(feature)} ({names[0]})"
    assert caught.value.line == 2 and "(line 2)" in str(caught.value)


def _whole(feature: str) -> str:
    (found,) = [each for each in refused.REFUSED if each.startswith(feature)]
    return found


@pytest.mark.parametrize(
    ("text", "feature", "line"),
    [
        ("template <class T> __global__ void k(T* x) {\n  __barrier_sync(1);\n}\n", "named barriers", 2),
        ("template <class T> __global__ void k(T* x) {\n  __clusterDimIsSpecified();\n}\n", "whether a launch has", 2),
        ("template <class T> __global__ void k(T* x) {\n\n  x[0] = __nv_unheard_of(x[0]);\n}\n", "__nv_unheard_of", 3),
        ("template <class T>\n__global__ void k(T* x, cudaTextureObject_t t) {}\n", "textures and surfaces", 2),
        ("template <class T>\n__global__ void k(T* x) { x[0] = tex2D<float>(0, 1, 2); }\n", "(tex2D)", 2),
        ("#include <cub/no_such_header.cuh>\ntemplate <class T> __global__ void k(T* x) {}\n", "no_such_header", 1),
        ("#include <cuda/std/array>\ntemplate <class T> __global__ void k(T* x) {\n  cuda::access_property p;\n}\n",
         "(cuda::access_property)", 3),
        ("#include <thrust/sort.h>\ntemplate <class T> __global__ void k(T* x) {}\n", "<thrust/sort.h>", 1),
        ("\n#include <mma.h>\ntemplate <class T> __global__ void k(T* x) {}\n", "tensor cores (mma.h)", 2),
    ],
)  # fmt: skip
def test_however_the_compiler_reports_it(text: str, feature: str, line: int) -> None:
    cu = opsmith.cuda_source(text)
    with opsmith.emulate(), pytest.raises(UnsupportedFeatureError) as caught:
        cu["k<float>"][1, 1](torch.zeros(1))
    assert feature in caught.value.feature and caught.value.line == line


def test_an_authors_own_function_of_such_a_name_is_called() -> None:
    cu = opsmith.cuda_source(
        "__device__ float tex2D(float x, float y) { return 10 * x + y; }\n"
        "__global__ void k(float* x) { x[0] = tex2D(4.0f, 2.0f); }\n"
    )
    x = torch.zeros(1)
    with opsmith.emulate():
        cu.k[1, 1](x)
    assert x.item() == 42


def test_ptx_in_a_header_is_refused_where_it_is_used_and_only_there(tmp_path: Path) -> None:
    (tmp_path / "helpers.cuh").write_text(
        "#pragma once\n"
        "__device__ inline unsigned lane() {\n"
        '  unsigned found; asm("mov.u32 %0, %%laneid;" : "=r"(found));\n'
        "  return found;\n}\n"
        '__device__ inline void compiler_fence() { asm volatile("" ::: "memory"); }\n'
    )
    uses = '#include "helpers.cuh"\n__global__ void k(unsigned* x) { compiler_fence(); x[0] = USED; }\n'
    x = torch.zeros(1, dtype=torch.uint32)
    plain = opsmith.cuda_source(uses, include_dirs=tmp_path, defines={"USED": "7"})
    with opsmith.emulate():
        plain.k[1, 1](x)
        assert x.item() == 7
        with pytest.raises(UnsupportedFeatureError, match=r"inline PTX.*\(line 3 of helpers.cuh\)"):
            opsmith.cuda_source(uses, include_dirs=tmp_path, defines={"USED": "lane()"}).k[1, 1](x)


def test_an_unknown_name_of_the_authors_own_is_a_compile_error() -> None:
    cu = opsmith.cuda_source("__global__ void k(float* x) { x[0] = scaled(x[0]); }\n")
    with opsmith.emulate(), pytest.raises(opsmith.errors.CompileError, match="'scaled' was not declared"):
        cu.k[1, 1](torch.zeros(1))
