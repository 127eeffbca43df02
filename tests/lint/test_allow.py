"""Comments that allow a rule to be broken: where they apply, and findings about those that apply to nothing."""

from __future__ import annotations

import pytest

from opsmith.lint import Finding, lint_text

HEAD = "void f(float* x, cudaStream_t s) {\n"
LAUNCH = "  k<<<1, 1>>>(x);\n  C10_CUDA_KERNEL_LAUNCH_CHECK();\n}\n"
ALLOW = "// opsmith: allow(default-stream)"


def found(text: str) -> list[Finding]:
    return lint_text(text, "a.cu")


def rules(text: str) -> list[str]:
    return [finding.rule for finding in found(text)]


@pytest.mark.parametrize(
    "text",
    [
        HEAD + LAUNCH.replace(";", f";  {ALLOW}", 1),
        HEAD + LAUNCH.replace(";", f";  {ALLOW}: a reason (and more), as one should give", 1),
        HEAD + f"  {ALLOW}\n" + LAUNCH,
        HEAD + f"  {ALLOW}\n  // a reason on a line of its own\n\n" + LAUNCH,
        HEAD + "  /* opsmith: allow(default-stream) */" + LAUNCH,
        HEAD + "  /* opsmith:\n     allow(default-stream) */\n" + LAUNCH,
        "// opsmith: allow-file(default-stream): a file of benchmarks\n" + HEAD + LAUNCH,
        HEAD + LAUNCH + "// opsmith: allow-file(default-stream)",
        HEAD + LAUNCH.replace("x);", "// opsmith: allow(default-stream)\n  x);", 1),
    ],
)
def test_a_comment_on_the_line_before_it_or_for_the_file_allows(text: str) -> None:
    assert rules(text) == []


@pytest.mark.parametrize(
    "text",
    [
        HEAD + LAUNCH.replace("CHECK();", f"CHECK();  {ALLOW}"),  # beside the next line
        f"{ALLOW}\n" + HEAD + LAUNCH,  # two lines before
        HEAD.replace("\n", f"  {ALLOW}\n") + LAUNCH,  # beside the line before
        HEAD + f'  const char* text = "{ALLOW}";\n' + LAUNCH,
    ],
)
def test_a_comment_elsewhere_does_not_allow(text: str) -> None:
    assert "default-stream" in rules(text)


def test_several_rules_may_be_named_and_others_stay() -> None:
    text = (
        "void f(float* x) {\n  k<<<1, 1>>>(x);  // opsmith: allow(default-stream, unchecked-launch)\n  cudaFree(x);\n}"
    )
    assert rules(text) == []
    assert rules(text.replace(", unchecked-launch", "")) == ["unchecked-launch"]


def test_a_macro_of_several_lines_is_one() -> None:
    macro = "// opsmith: allow(messageless-check)\n#define CHECK(x) \\\n  f(x); \\\n  TORCH_CHECK(x)\n"
    assert rules(macro) == []
    assert rules(macro.partition("\n")[2]) == ["messageless-check"]


def test_an_unknown_rule_is_reported_with_the_nearest_known_one() -> None:
    (finding,) = found("int x;  // opsmith: allow(defualt-stream)")
    assert (finding.rule, finding.line, finding.column) == ("unknown-allow", 1, 27)
    assert finding.message == "There is no rule 'defualt-stream' to allow."
    assert finding.remedy == "Did you mean default-stream?"


@pytest.mark.parametrize("comment", ["// opsmith: allow", "// opsmith: allow()", "// opsmith: allow default-stream"])
def test_a_comment_without_a_rule_is_reported(comment: str) -> None:
    assert rules(f"int x;  {comment}") == ["unknown-allow"]


def test_an_allowed_rule_that_is_not_broken_is_reported() -> None:
    (one, two) = found("int x;  // opsmith: allow(int32-index, default-stream)")
    assert (one.rule, one.column, two.column) == ("unused-allow", 27, 40)
    assert one.message == "int32-index is allowed, and not broken on that line."
    (whole,) = found("// opsmith: allow-file(int32-index)")
    assert whole.message == "int32-index is allowed, and not broken in this file."


def test_other_comments_about_opsmith_are_ignored() -> None:
    assert rules("// opsmith: a library. See opsmith:allowance.\nint x;") == []
