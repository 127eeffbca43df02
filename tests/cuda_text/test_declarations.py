"""The declarations of a CUDA source: kernels, their parameters, constants, variables."""

from __future__ import annotations

import pytest

from opsmith.cuda_text.declarations import KernelText, SourceText, declarations_in


def found(text: str) -> SourceText:
    return declarations_in([text])


def only(text: str) -> KernelText:
    (kernel,) = found(text).kernels.values()
    return kernel


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(float* x, int n) { }",
        'extern "C" __global__ void k(float* x, int n);',
        'extern "C" { __global__ void k(float* x, int n) {} }',
        "static __global__ void __launch_bounds__(256, 2) k(float* x, int n) {}",
        "__launch_bounds__(128) __global__ void k(float *x, int n) {}",
        "__global__ void __cluster_dims__(2, 1, 1) k(float* x,\n  int n) {}",
        "void __global__ k(float* x, int n) {}",
        "__global__ auto k(float* x, int n) -> void {}",
        "__global__ void k(float*, int);\n__global__ void k(float* x, int n) {}",
        "__global__ void k(float* x, int n);\n__global__ void k(float* x, int n) {}",
        "__global__ void BOUNDS(128) k(float* x, int n) {}",
        "BOUNDS(128) __global__ void k(float* x, int n) {}",
        "__global__ void k(float* x, int n) ATTRIBUTE(3);",
        "[[maybe_unused]] __global__ void k(float* x, int n) {}",
        "#if A\n__global__ void k(float* x, int n) {\n#else\n__global__ void k(double* x, int n) {\n#endif\n}",
        "#if 0\n__global__ void k(float* x, int n) {}\n#endif",
        "#if 0\n} } /* dead */ {\n#endif\n__global__ void \\\nk(float* x, int n) {}",
        "struct S { __device__ int f(int a) { return a; } };\n__global__ void k(float* x, int n) { { *x = 1; } }",
    ],
)
def test_a_kernel_is_found_however_it_is_declared(text: str) -> None:
    kernel = only(text)
    assert kernel.name == "k" and kernel.template is None
    assert [parameter.name for parameter in kernel.parameters] == ["x", "n"]


@pytest.mark.parametrize(
    "text",
    [
        "// __global__ void k() {}",
        "/* __global__ void k() {} */",
        "// continued \\\n__global__ void k() {}",
        'const char* s = "__global__ void k() {}";',
        'const char* s = R"x(__global__ void k() { ")x";',
        "#define KERNEL(name) \\\n  __global__ void name(float* x)\n",
        "__device__ void k(float* x) {}",
        "",
    ],
)
def test_text_that_only_looks_like_a_kernel_is_not_one(text: str) -> None:
    assert not found(text).kernels


def test_quotes_in_numbers_and_characters_do_not_hide_what_follows() -> None:
    assert only("constexpr int n = 1'000'000; char q = '\"', r = '\\'';\n__global__ void k(int a) {}").name == "k"


def test_names_are_qualified_by_their_namespaces() -> None:
    text = """
    namespace a::b { namespace { __global__ void one() {} } inline namespace v2 { __global__ void two() {} } }
    namespace c { struct S { int x; }; __global__ void three() {} __constant__ float table[3]; __device__ int seen; }
    __global__ void c::four(int x) {}
    namespace alias = a::b;
    __global__ void five() {}
    """
    assert list(found(text).kernels) == ["a::b::one", "a::b::v2::two", "c::three", "c::four", "five"]
    assert found(text).constants == ["c::table"] and found(text).variables == ["c::seen"]


def test_a_template_has_parameters_and_an_example_of_an_instance() -> None:
    kernel = only(
        "template <typename T, int N = 4, bool Fast = false, class U = Pair<T, int>>\n__global__ void k(T* x) {}"
    )
    assert kernel.template == ("typename T", "int N = 4", "bool Fast = false", "class U = Pair<T, int>")
    assert kernel.example == "k<float, 4, true, float>"
    assert only("template <typename T> requires (sizeof(T) > 2) __global__ void k(T* x) {}").template == ("typename T",)


def test_specialisations_and_explicit_instances_are_not_kernels() -> None:
    text = """
    template <typename T> __global__ void k(T* x) {}
    template <> __global__ void k<int>(int* y) {}
    template __global__ void k<float>(float*);
    template __global__ void k(double*);
    """
    assert [parameter.name for parameter in only(text).parameters] == ["x"]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("const float* __restrict__ x", "x"),
        ("const T &&... rest", "rest"),
        ("float x[4]", "x"),
        ("int n = sizeof(int) > 4 ? 1 : 2", "n"),
        ("cuda::std::array<int, 3> sizes = {1, 2, 3}", "sizes"),
        ("const __grid_constant__ Params p", "p"),
        ("struct Params p", "p"),
        ("unsigned int", ""),
        ("const T", ""),
        ("float*", ""),
        ("struct Params", ""),
        ("cuda::std::size_t", ""),
        ("float* __restrict__", ""),
    ],
)
def test_a_parameter_has_a_name_apart_from_its_type(written: str, name: str) -> None:
    kernel = only(f"__global__ void k(int before, {written}, int after) {{}}")
    assert [(p.text, p.name) for p in kernel.parameters] == [
        ("int before", "before"), (written, name), ("int after", "after")
    ]  # fmt: skip


def test_no_parameters_may_be_written_as_void() -> None:
    assert only("__global__ void k(void) {}").parameters == () == only("__global__ void k() {}").parameters


def test_constants_are_found_in_every_form() -> None:
    text = "__constant__ float a[4], *b = nullptr; static __constant__ S c{1, 2}; __device__ __constant__ int d = 3;"
    text += "__constant__ struct { int rows, cols; } e; alignas(16) __constant__ cuda::std::array<int, 2> f = {1, 2};"
    assert found(text).constants == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("__device__ int counter;", ["counter"]),
        ("static __device__ float a[2] = {1, 2}, b;", ["a", "b"]),
        ("__device__ __managed__ int shared_with_host = 0;", ["shared_with_host"]),
        ("__device__ const float* writable;", ["writable"]),
        ("template <class T> __device__ T buffer[4];", ["buffer"]),
        ("__device__ const float pi = 3.14f; __device__ constexpr int n = 3;", []),
        ("__device__ const float* const fixed = nullptr;", []),
        ("__device__ float helper(float x) { static int inside; return x; }", []),
        ("__device__ float declared(float x);", []),
        ("__device__ float4 operator+(float4 a, float4 b) { return a; }", []),
        ("__device__ S::S(int x) : a(x) {}", []),
        ("struct S { __device__ int f() { return 1; } int member; };", []),
        ("template <class T, class = enable_if_t<(sizeof(T) > 2)>> __device__ T f(T x) { return x; }", []),
        ("extern __shared__ float dynamic[];", []),
        ("using F = int; typedef int G;", []),
    ],
)
def test_variables_are_those_that_kernels_may_write(text: str, variables: list[str]) -> None:
    assert found(text).variables == variables


def test_text_that_never_closes_ends_nevertheless() -> None:
    for text in ("__global__ void k(int x", "namespace a {", "/* __global__", "__global__ void k(int x) { {", "}}}"):
        assert isinstance(found(text), SourceText)
