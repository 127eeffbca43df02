"""Comments that allow a rule to be broken: `// opsmith: allow(rule)` for a line, `allow-file(rule)` for the file.

Beside code, a comment applies to its line; on a line without code, to the next line with code.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from .rule import Finding
from .source import Source

UNKNOWN, UNUSED = "unknown-allow", "unused-allow"
ABOUT_ALLOWS = {
    UNKNOWN: "A comment that allows an unknown rule allows nothing.",
    UNUSED: "A comment that allows a fault which is not there hides the next one that is.",
}
"""The two rules about such comments, and their reasons."""

_ALLOW = re.compile(r"opsmith:\s*allow(?P<file>-file)?\b(?:\s*\((?P<rules>[^()]*)\))?")
_NAME = re.compile(r"[^\s,]+(?:[ \t]+[^\s,]+)*")


@dataclass
class _Allow:
    """One rule named in one comment."""

    rule: str
    start: int  # of the name in the text
    lines: range | None  # None: the file
    used: bool = False

    def covers(self, finding: Finding) -> bool:
        return finding.rule == self.rule and (self.lines is None or finding.line in self.lines)


def allowed(source: Source, findings: Iterable[Finding], known: Collection[str]) -> list[Finding]:
    """The findings that no comment allows, and findings about the comments."""
    allows = list(_allows(source))
    kept: list[Finding] = []
    for finding in findings:
        covering = [allow for allow in allows if allow.covers(finding)]
        for allow in covering:
            allow.used = True
        if not covering:
            kept.append(finding)
    kept += [_about(source, allow, known) for allow in allows if not allow.used]
    return sorted(kept)


def _allows(source: Source) -> Iterator[_Allow]:
    for comment in source.comments:
        for found in _ALLOW.finditer(comment.text):
            lines = None if found["file"] else _lines_of(source, comment.start, comment.start + len(comment.text))
            names = [(name[0], found.start("rules") + name.start()) for name in _NAME.finditer(found["rules"] or "")]
            for name, start in names or [("", found.start())]:
                yield _Allow(name, comment.start + start, lines)


def _lines_of(source: Source, start: int, end: int) -> range:
    """The lines that a comment applies to."""
    text, line_of = source.text, source.lines.line
    if text[text.rfind("\n", 0, start) + 1 : start].strip():  # beside code
        return range(line_of(start), line_of(max(start, end - 1)) + 1)
    code = source.bare[end:]
    first = end + len(code) - len(code.lstrip())
    # A macro of several lines counts as one.
    last = next((stop for begin, stop in source.directives if begin <= first < stop), first)
    return range(line_of(first), line_of(last) + 1)


def _about(source: Source, allow: _Allow, known: Collection[str]) -> Finding:
    """The finding about a comment that allows nothing."""
    rule, remedy = UNKNOWN, "Write // opsmith: allow(rule); `opsmith lint --rules` lists the rules."
    if allow.rule in known:
        where = "in this file" if allow.lines is None else "on that line"
        rule, remedy = UNUSED, "Remove the comment."
        message = f"{allow.rule} is allowed, and not broken {where}."
    elif allow.rule:
        message = f"There is no rule {allow.rule!r} to allow."
        near = difflib.get_close_matches(allow.rule, known, n=1)
        remedy = f"Did you mean {near[0]}?" if near else remedy
    else:
        message = "The comment allows no rule: it names none in brackets."
    return Finding(source.path, *source.lines.place(allow.start), rule, message, remedy)
