"""Each rule finds its fault, at its line, and reports nothing in correct code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opsmith.lint import REASONS, RULES, Rule, lint_file, lint_text

HERE = Path(__file__).parent
BAD = sorted((HERE / "bad").iterdir())
GOOD = sorted((HERE / "good").iterdir())
PAGE = HERE.parents[1] / "docs" / "lint_rules.md"
_EXAMPLE = re.compile(r"^(Bad|Good):\n\n```cuda\n(.*?)```", re.DOTALL | re.MULTILINE)
_EXPECTED = re.compile(r"expect(?P<next> on the next line)?: (?P<rules>[a-z0-9-]+(?:, [a-z0-9-]+)*)")


def expected(path: Path) -> list[tuple[int, str]]:
    """What the comments of a file say is to be found: `// expect: rule, rule`."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for comment in _EXPECTED.finditer(line):
            found += [(number + bool(comment["next"]), rule) for rule in comment["rules"].split(", ")]
    return sorted(found)


def examples(rule: Rule, kind: str) -> list[str]:
    """The 'Bad' or the 'Good' code of a rule's section."""
    (section,) = re.findall(rf"^## {rule.name}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [code for title, code in _EXAMPLE.findall(section) if title == kind]


def named(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", BAD, ids=named)
def test_findings_are_those_that_the_comments_expect(path: Path) -> None:
    assert sorted((finding.line, finding.rule) for finding in lint_file(path)) == expected(path)


@pytest.mark.parametrize("path", GOOD, ids=named)
def test_correct_code_has_no_finding(path: Path) -> None:
    assert [str(finding) for finding in lint_file(path)] == []


def test_every_rule_is_broken_by_a_source_of_bad() -> None:
    assert {rule for path in BAD for _, rule in expected(path)} == set(REASONS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
class TestRule:
    def test_its_bad_examples_are_found(self, rule: Rule) -> None:
        found = examples(rule, "Bad")
        assert found
        for example in found:
            assert rule.name in [finding.rule for finding in lint_text(example, "example.cu")], example

    def test_its_good_examples_break_no_rule(self, rule: Rule) -> None:
        found = examples(rule, "Good")
        assert found
        for example in found:
            assert [str(finding) for finding in lint_text(example, "example.cu")] == [], example

    def test_its_name_and_its_reason_are_well_formed(self, rule: Rule) -> None:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
        assert rule.reason.endswith(".") and ". " not in rule.reason

    def test_its_findings_have_a_sentence_and_a_remedy_of_one_line(self, rule: Rule) -> None:
        findings = [found for path in BAD for found in lint_file(path) if found.rule == rule.name]
        assert findings
        for finding in findings:
            assert re.match(r"[A-Za-z_.:].*[.]$", finding.message), finding.message
            assert finding.remedy and "\n" not in finding.remedy
