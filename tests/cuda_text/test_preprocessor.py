"""The code of a file: comments, directives and dead branches are not in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsmith.cuda_text import Preprocessed

from .cpp_texts import texts

HIDDEN = "hidden() { } /* [ // ( hidden"
"""In a comment or a string, this is not code."""


def words(text: str) -> set[str]:
    return set(Preprocessed(text).code.words)


@given(texts)
@settings(max_examples=200, deadline=None)
def test_code_has_the_tokens_of_the_text_at_their_places(text: str) -> None:
    code = Preprocessed(text).code
    for token, start in zip(code.texts, code.starts, strict=True):
        assert text[start : start + len(token)] == token
        assert not token.startswith(("//", "/*"))


@given(
    st.lists(
        st.sampled_from([
            f"/* {HIDDEN} */", f"// {HIDDEN}\n", f"// {HIDDEN} \\\n {HIDDEN}\n", f'"{HIDDEN}"', f'"\\"{HIDDEN}"',
            f'R"x({HIDDEN} )" \n)x"', f"\n#define A() {HIDDEN} */\n", f"\n#if 0\n{HIDDEN} */\n#endif\n", "'\"' ",
            "1'000 ", "code ", "{ ", "f(1); ", "} ", "/ ", "\n",
        ])
    )
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_comments_strings_and_directives_never_become_code(pieces: list[str]) -> None:
    found = words("".join(pieces))
    assert "hidden" not in found
    assert ("code" in found) == ("code " in pieces) and ("f" in found) == ("f(1); " in pieces)


def test_directives_end_with_their_line() -> None:
    parts = Preprocessed(
        "#define A(x) \\\n  x /* not \n yet */ + 1\ny\n  /* first */ # pragma once\na # b\n#define C \\\r\n c\r\nd"
    )
    assert parts.code.texts == ["y", "a", "#", "b", "d"]
    assert [comment.text for comment in parts.comments] == ["/* not \n yet */", "/* first */"]
    assert [macro.code.texts for macro in parts.macros] == [["x", "+", "1"], ["c"]]


def test_branches_are_read_where_they_fit_together() -> None:
    text = "#if A\nint one;\n#elif B\nint two;\n#else\nint three;\n#endif\n"
    assert {"one", "two", "three"} <= words(text)
    heads = "#if A\nvoid f(int one) {\n#else\nvoid f(int two) {\n#endif\n}\n"
    assert "one" in words(heads) and "two" not in words(heads)
    dead = words("#if 0\nint one;\n#else\nint two;\n#endif\n#if 1\nint three;\n#else\nint four;\n#endif")
    assert "two" in dead and "three" in dead and "one" not in dead and "four" not in dead
    settled = words("#if A\nint a;\n#elif 1\nint b;\n#elif C\nint c;\n#else\nint d;\n#endif\nint e;")
    assert [word for word in "abcde" if word in settled] == ["a", "b", "e"]


def test_conditionals_may_be_nested() -> None:
    text = "#ifndef H\nint a;\n#if B\nint b;\n#else\nint c;\n#if 0\nint d;\n#endif\n#endif\nint e;\n#endif\nint f;"
    assert [word for word in "abcdef" if word in words(text)] == ["a", "b", "c", "e", "f"]


def test_a_conditional_that_never_ends_ends_with_the_file() -> None:
    assert {"a", "b"} <= words("#if A\nint a;\n#if B\nint b;\n")
    assert words("#endif\n#else\nint a;") == {"int", "a"}


def test_macros_have_parameters_and_a_body() -> None:
    macros = Preprocessed("#define A(x, ...) f(x)\n#define B (x)\n#define C\n#undef A\nint B;").macros
    assert [(each.name, each.parameters, each.code.texts) for each in macros] == [
        ("A", ("x", "..."), ["f", "(", "x", ")"]),
        ("B", (), ["(", "x", ")"]),
        ("C", (), []),
    ]


@pytest.mark.parametrize("written", ["<a/b.h>", '"a/b.h"', " <a/b.h>  // c"])
def test_includes_are_paths(written: str) -> None:
    assert Preprocessed(f"#include {written}\n").includes == ["a/b.h"]
