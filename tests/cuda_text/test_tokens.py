"""Tokens: their text, their places, their kinds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from opsmith.cuda_text.tokens import Lines, is_comment, is_number, is_string, is_word, tokenized, without_comments

from .cpp_texts import texts

KINDS = {"word": is_word, "number": is_number, "string": is_string, "comment": is_comment}


def kinds(text: str) -> list[str]:
    """The kind of each token; '' for punctuation and characters."""
    return [" ".join(name for name, is_kind in KINDS.items() if is_kind(token)) for token in tokenized(text)[0]]


@given(texts)
@settings(max_examples=400, deadline=None)
def test_tokens_and_white_space_join_to_the_text(text: str) -> None:
    end = 0
    for token, start in zip(*tokenized(text), strict=True):
        assert token and text[start : start + len(token)] == token
        assert not re.sub(r"\\\r?\n", "", text[end:start]).strip()
        end = start + len(token)
    assert not re.sub(r"\\\r?\n", "", text[end:]).strip()


@given(texts)
@settings(max_examples=200, deadline=None)
def test_a_token_has_one_kind(text: str) -> None:
    assert not any(" " in kind for kind in kinds(text))


@given(texts)
@settings(max_examples=200, deadline=None)
def test_line_and_column_lead_back_to_the_character(text: str) -> None:
    lines, rows = Lines(text), text.split("\n")
    for token, start in zip(*tokenized(text), strict=True):
        line, column = lines.place(start)
        assert rows[line - 1][column - 1] == token[0]


@given(texts)
@settings(max_examples=200, deadline=None)
def test_without_comments_the_other_tokens_stay_where_they_were(text: str) -> None:
    bare = without_comments(text)
    assert len(bare) == len(text) and bare.count("\n") == text.count("\n")
    for token, start in zip(*tokenized(text), strict=True):
        left = bare[start : start + len(token)]
        assert not left.strip() if is_comment(token) else left == token


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_1 $b Ωmega L u8 R", ["word"] * 6),
        ("1'000'000 0x1p-3 .5f 1e+5 3u", ["number"] * 5),
        (r'"a\"b" u8"x" L"y" R"d(")" )d" u8R"(a)"', ["string"] * 5),
        (r"'a' '\'' '\\' L'b'", ["", "", "", "word", ""]),
        ("// to the end \\\n and on\n/* more\nlines */ x", ["comment", "comment", "word"]),
        ("// a \\\r\n b\r\nx", ["comment", "word"]),
        ("<<< >>> << >= -> :: ... ##", [""] * 10),
        ('"never closed\nx', ["string", "word"]),
        ('R"(never closed\nx', ["string"]),
        ("/* never closed", ["comment"]),
        ("a \\\n b", ["word", "word"]),
    ],
)
def test_kinds(text: str, expected: list[str]) -> None:
    assert kinds(text) == expected


def test_comments_become_spaces_and_literals_stay() -> None:
    text = 'int a; // one\nconst char* s = "/* no // comment */"; /* two\nlines */ int b;\n'
    assert without_comments(text) == ('int a;       \nconst char* s = "/* no // comment */";       \n         int b;\n')
