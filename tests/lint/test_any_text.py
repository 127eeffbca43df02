"""The linter accepts any text."""

from __future__ import annotations

import pytest
from cuda_text.cpp_texts import texts
from hypothesis import given, settings

from opsmith.lint import lint_text


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
    def test_deeply_nested_text_does_not_break_the_linter(self, text: str) -> None:
        lint_text(text, "deep.cu")

    def test_lines_may_end_with_carriage_returns(self) -> None:
        text = "void f(float* x) {\n  k<<<1, 1>>>(x);\n}\n"
        places = {(found.line, found.column, found.rule) for found in lint_text(text, "a.cu")}
        assert places == {(2, 3, "default-stream"), (2, 3, "unchecked-launch")}
        for end in ("\r\n", "\r"):
            other = lint_text(text.replace("\n", end), "a.cu")
            assert {(found.line, found.column, found.rule) for found in other} == places
