"""Functions and launches in a file."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsmith.cuda_text import Code, Preprocessed, declarations_in, functions_in, launches_in
from opsmith.cuda_text.tokens import tokenized

from .cpp_texts import CUDA

SPACE = st.sampled_from([" ", "\n", "\t\r\n", " \\\n ", "/**/", "/* } ( */", "// void no() { \\\n {\n", "\n\n"])


def code_of(text: str) -> Code:
    return Preprocessed(text).code


def found(text: str) -> object:
    """Everything that is read from a text, without its white space."""
    code, declared = code_of(text), declarations_in([text])

    def squeezed(first: int, last: int) -> str:
        return "".join(code.texts[first:last])

    return (
        [(each.name, each.kind, [(p.name, p.type, p.pointer) for p in each.parameters]) for each in functions_in(code)],
        [
            (each.kernel, each.grid and squeezed(*each.grid), [squeezed(*one) for one in each.arguments or ()])
            for each in launches_in(code)
        ],
        [
            (kernel.name, [p.name for p in kernel.parameters], "".join(kernel.template or ()).replace(" ", ""))
            for kernel in declared.kernels.values()
        ],
        declared.constants,
        declared.variables,
    )


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_white_space_and_comments_change_nothing(data: st.DataObject) -> None:
    tokens, _ = tokenized(CUDA)
    spaces = data.draw(st.lists(SPACE, min_size=len(tokens), max_size=len(tokens)))
    pairs = zip(tokens, tokens[1:], spaces[1:], strict=False)
    # `>>>` closes a launch only where nothing is between.
    ends = ["" if (token, after) == (">", ">") else space for token, after, space in pairs]
    text = "".join(token + end for token, end in zip(tokens, [*ends, ""], strict=True))
    assert found(text) == found(CUDA)


def test_template_parameters_have_the_words_of_their_types() -> None:
    (function,) = functions_in(code_of("template <std::size_t M=2, typename... A, class, int> void f(A... a) {}"))
    assert function.template_parameters["M"] == ("std", "::", "size_t")
    assert function.template_parameters["A"] == ("typename", "...")
    assert functions_in(code_of("template <,> void f() {}"))[0].template_parameters == {"": ()}


def test_functions_differ_by_where_they_run() -> None:
    functions = functions_in(code_of(CUDA))
    assert [(function.name, function.kind) for function in functions] == [
        ("kernel", "kernel"),
        ("device_function", "device"),
        ("operator", "device"),
        ("Walk", "host"),
        ("operator", "device"),
        ("with_macros", "kernel"),
        ("kernel", "kernel"),
        ("host", "host"),
        ("trailing", "host"),
    ]
    kernel, host = functions[0], functions[-2]
    assert [(each.name, each.type, each.pointer) for each in kernel.parameters] == [
        ("x", ("T",), True),
        ("n", ("unsigned", "int"), False),
        ("y", ("float",), True),
    ]
    assert kernel.template_parameters == {"T": ("typename",), "N": ("int",), "U": ("class",)}
    assert [(each.name, "Tensor" in each.type) for each in host.parameters] == [("x", True), ("bias", True)]
    assert [each.name for each in functions[4].parameters] == ["i"]


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
def test_launches_have_a_kernel_a_grid_a_stream_and_arguments(
    launch: str, kernel: str, grid: str, stream: str | None, arguments: list[str] | None
) -> None:
    code = code_of(f"void f() {{ {launch}; }}")
    (found,) = launches_in(code)
    assert found.kernel == kernel
    assert found.grid and code.spelled(*found.grid) == grid
    assert (found.stream and code.spelled(*found.stream)) == stream
    assert (None if found.arguments is None else [code.spelled(*each) for each in found.arguments]) == arguments
