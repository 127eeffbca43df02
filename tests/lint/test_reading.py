"""How a source is read: tokens at their places, code apart from comments and dead branches, functions, launches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsmith.cuda_text.tokens import (
    CHARACTER,
    COMMENT,
    DIRECTIVE,
    NUMBER,
    PUNCTUATION,
    STRING,
    WORD,
    Lines,
    tokenized,
)
from opsmith.lint import lint_text
from opsmith.lint.source import Source

# Pieces of C++ in any order: nearer to what breaks a reader than letters at random.
PIECES = [
    "__global__ void f(float* x, int n) {", "void g(torch::Tensor x) {", "}", "{", "(", ")", "[", "]", "<", ">",
    "<<<", ">>>", ",", ";", "=", "+", "*", "/", "%", "&", "?", ":", "::", ".", "->", "\n", "\\\n", "#if 0\n",
    "#else\n", "#endif\n", "#define F(x) ", "//", "/*", "*/", '"', "'", 'R"(', ')"', "x", "n", "int i = ",
    "blockIdx.x", "threadIdx.x", "x[", "f<<<n, 1>>>(", "template <", "typename T", "operator", "auto", "dim3",
    "static_cast<", "atomicAdd(", "thrust::", "sort", "cub::DeviceReduce::Max(", "m.def(", "TORCH_CHECK(",
    ".contiguous()", ".data_ptr<float>()", "opsmith::launch(", "// opsmith: allow(",
    "// opsmith: allow-file(int32-index)", "0", "1'000", "0x7f", "namespace a {", "struct S {", "~",
]  # fmt: skip
texts = st.one_of(
    st.text(),
    st.text(alphabet="\"'/*\\\nR()#<>{}[];a0 "),
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join),
)


class TestTokens:
    @given(texts)
    @settings(max_examples=400, deadline=None)
    def test_tokens_are_the_text_and_nothing_between_them_is_code(self, text: str) -> None:
        end = 0
        for token in tokenized(text):
            assert token.start >= end
            assert token.text and text[token.start : token.start + len(token.text)] == token.text
            assert not re.sub(r"\\\n", "", text[end : token.start]).strip()
            end = token.start + len(token.text)
        assert not re.sub(r"\\\n", "", text[end:]).strip()

    @given(texts)
    @settings(max_examples=200, deadline=None)
    def test_line_and_column_lead_back_to_the_character(self, text: str) -> None:
        lines, rows = Lines(text), text.split("\n")
        for token in tokenized(text):
            line, column = lines.place(token.start)
            assert rows[line - 1][column - 1] == token.text[0]

    @pytest.mark.parametrize(
        ("text", "kinds"),
        [
            ("a_1 $b Ωmega", [WORD, WORD, WORD]),
            ("1'000'000 0x1p-3 .5f 1e+5 3u", [NUMBER] * 5),
            (r'"a\"b" u8"x" L"y" R"d(")" )d"', [STRING] * 4),
            (r"'a' '\'' '\\'", [CHARACTER] * 3),
            ("// to the end \\\n and on\n/* more\nlines */ x", [COMMENT, COMMENT, WORD]),
            ("#define A(x) \\\n  x /* not \n yet */ + 1\ny", [DIRECTIVE, WORD]),
            ("  /* first */ # pragma once\na # b", [COMMENT, DIRECTIVE, WORD, PUNCTUATION, WORD]),
            ("<<< >>> << >= -> :: ... ##", [PUNCTUATION] * 10),
            ('"never closed\nx', [STRING, WORD]),
            ('R"(never closed\nx', [STRING]),
            ("/* never closed", [COMMENT]),
        ],
    )
    def test_kinds(self, text: str, kinds: list[int]) -> None:
        assert [token.kind for token in tokenized(text)] == kinds


class TestSource:
    def test_functions_are_told_apart_by_who_runs_them(self) -> None:
        text = """
        namespace a::b {
        template <typename T, int N = (2 > 1)>
        __global__ void __launch_bounds__(256, 4) kernel(const T* __restrict__ x, unsigned int n) { }
        }
        extern "C" { __device__ __forceinline__ float device_function(float) { return 0; } }
        struct Walk : Base<int> {
          Walk(int n) : n_(n), step{1} { }
         private:
          C10_HOST_DEVICE float operator()(int i) const { return i; }
        };
        static auto table = [](int) { return 1; };
        const char* names[] = {"a", "b"};
        Walk walk{1};
        OPSMITH_EXPORT(one, two)
        std::vector<at::Tensor> host(const at::Tensor& x, std::optional<at::Tensor> bias = std::nullopt) { }
        auto trailing(int64_t n) -> decltype(n + 1) { }
        """
        functions = Source(text).functions
        assert [(function.name, function.kind) for function in functions] == [
            ("kernel", "kernel"),
            ("device_function", "device"),
            ("Walk", "host"),
            ("operator", "device"),
            ("host", "host"),
            ("trailing", "host"),
        ]
        kernel, host = functions[0], functions[4]
        assert [(each.name, each.type, each.pointer) for each in kernel.parameters] == [
            ("x", ("T",), True),
            ("n", ("unsigned", "int"), False),
        ]
        assert kernel.template_parameters == {"T": ("typename",), "N": ("int",)}
        assert [(each.name, "Tensor" in each.type) for each in host.parameters] == [("x", True), ("bias", True)]
        assert [each.name for each in functions[3].parameters] == ["i"]

    @pytest.mark.parametrize(
        ("launch", "kernel", "grid", "stream", "arguments"),
        [
            ("k<<<1, 2>>>(a, b)", "k", "1", None, ["a", "b"]),
            ("ns::k<float, 4><<<dim3(a, b), 2, 0, s>>>()", "k", "dim3(a, b)", "s", []),
            ("k<<<n >> 2, 1, sizeof(A<B<int>>), f<x>>>>(a)", "k", "n >> 2", "f<x>", ["a"]),
            ("k<<<(a > b ? a : b), 2, 0,\n  s\n>>>(f(a, b), c)", "k", "(a > b ? a : b)", "s", ["f(a, b)", "c"]),
            ("cudaLaunchKernel((void*)k<float>, g, b, args, 0, s)", "k", "g", "s", None),
            ("opsmith::launch(k<float>, {g, {1, 2}, 64}, x, a, b)", "k", "g", "x", ["a", "b"]),
        ],
    )
    def test_launches_are_taken_apart(
        self, launch: str, kernel: str, grid: str, stream: str | None, arguments: list[str] | None
    ) -> None:
        source = Source(f"void f() {{ {launch}; }}")
        (found,) = source.launches
        spelled = source.code.spelled
        assert found.kernel == kernel
        assert found.grid and spelled(*found.grid) == grid
        assert (found.stream and spelled(*found.stream)) == stream
        assert (found.arguments and [spelled(*each) for each in found.arguments]) == (arguments or found.arguments)

    def test_branches_of_the_preprocessor_are_read_where_they_fit_together(self) -> None:
        text = "#if A\nint one;\n#elif B\nint two;\n#else\nint three;\n#endif\n"
        assert {"one", "two", "three"} <= Source(text).code.words.keys()
        heads = "#if A\nvoid f(int one) {\n#else\nvoid f(int two) {\n#endif\n}\n"
        assert [function.parameters[0].name for function in Source(heads).functions] == ["one"]
        dead = "#if 0\nint one;\n#else\nint two;\n#endif\n#if 1\nint three;\n#else\nint four;\n#endif"
        words = Source(dead).code.words.keys()
        assert "two" in words and "three" in words and "one" not in words and "four" not in words
        settled = Source("#if A\nint a;\n#elif 1\nint b;\n#elif C\nint c;\n#else\nint d;\n#endif\nint e;")
        assert [word for word in "abcde" if word in settled.code.words] == ["a", "b", "e"]

    def test_constants_are_known_by_their_bits(self) -> None:
        source = Source(
            "#define A 16\n#define B (4 * 32)\n#define C 1.5f\n#define D 8L\n#define E f(1)\n"
            "constexpr int kF = 4;\nstatic constexpr int64_t kG = 5;\nvoid f() { constexpr int kH = 1; }"
        )
        assert source.constants == {"A": 32, "B": 32, "D": 64, "kF": 32, "kG": 64}

    def test_macros_are_kept_apart(self) -> None:
        source = Source("#define A(x, ...) f(x)\n#define B (x)\n#define C\n#undef A\nint B;")
        assert [(each.macro.name, each.macro.parameters, each.code.texts) for each in source.macros] == [
            ("A", ("x", "..."), ["f", "(", "x", ")"]),
            ("B", (), ["(", "x", ")"]),
            ("C", (), []),
        ]


class TestAnyText:
    @given(texts)
    @settings(max_examples=400, deadline=None)
    def test_no_text_breaks_the_linter_and_findings_are_inside_it(self, text: str) -> None:
        rows = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for finding in lint_text(text, "any.cu"):
            assert 1 <= finding.column <= len(rows[finding.line - 1])

    @pytest.mark.parametrize(
        "text",
        [
            "(" * 20000,
            "{" * 20000,
            "namespace a {" * 3000,
            "a<" * 10000,
            "int x = " + "(1+" * 5000,
            "#if A\n" * 3000,
            "__global__ void f(float* x) { x[" + "(blockIdx.x*" * 1000 + "] = 1; }",
            "[](" * 3000,
            "(]" * 10000,
        ],
        ids=lambda text: text[:20].strip(),
    )
    def test_nor_does_one_nested_without_end(self, text: str) -> None:
        lint_text(text, "deep.cu")

    def test_lines_may_end_as_they_do_elsewhere(self) -> None:
        text = "void f(float* x) {\n  k<<<1, 1>>>(x);\n}\n"
        places = {(found.line, found.column, found.rule) for found in lint_text(text, "a.cu")}
        assert places == {(2, 3, "default-stream"), (2, 3, "unchecked-launch")}
        for end in ("\r\n", "\r"):
            other = lint_text(text.replace("\n", end), "a.cu")
            assert {(found.line, found.column, found.rule) for found in other} == places
