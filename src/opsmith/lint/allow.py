"""What a source allows itself: `// opsmith: allow(rule)` for a line, `// opsmith: allow-file(rule)` for the file.

Beside code, a comment speaks of its line. On a line of its own, it speaks of the next line that has code.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from .finding import Finding
from .source import Source

UNKNOWN, UNUSED = "unknown-allow", "unused-allow"
ABOUT_ALLOWS = {
    UNKNOWN: "A comment that allows what is no rule allows nothing.",
    UNUSED: "A comment that allows what is not there will hide the next one that is.",
}
"""The two rules about such comments themselves, and why."""

_ALLOW = re.compile(r"opsmith:\s*allow(?P<file>-file)?\b(?:\s*\((?P<rules>[^()]*)\))?")


@dataclass
class _Allow:
    """One rule named in one comment."""

    rule: str
    start: int  # of the name in the text
    lines: range | None  # None: the file
    used: bool = field(default=False)

    def covers(self, finding: Finding) -> bool:
        return finding.rule == self.rule and (self.lines is None or finding.line in self.lines)


def allowed(source: Source, findings: Iterable[Finding], known: Collection[str]) -> list[Finding]:
    """The findings that no comment allows, and what is wrong with the comments."""
    allows: list[_Allow] = []
    kept: list[Finding] = []
    for allow in _allows(source):
        if allow.rule in known:
            allows.append(allow)
        else:
            kept.append(_unknown(source, allow, known))
    for finding in findings:
        covering = [allow for allow in allows if allow.covers(finding)]
        for allow in covering:
            allow.used = True
        if not covering:
            kept.append(finding)
    kept += [_unused(source, allow) for allow in allows if not allow.used]
    return sorted(kept)


def _allows(source: Source) -> Iterator[_Allow]:
    for comment in source.comments:
        for found in _ALLOW.finditer(comment.text):
            lines = None if found["file"] else _lines_of(source, comment.start, comment.start + len(comment.text))
            if found["rules"] is None:
                yield _Allow("", comment.start + found.start(), lines)
                continue
            for name in re.finditer(r"[^\s,]+(?:[ \t]+[^\s,]+)*", found["rules"]) if found["rules"].strip() else ():
                yield _Allow(name[0], comment.start + found.start("rules") + name.start(), lines)
            if not found["rules"].strip():
                yield _Allow("", comment.start + found.start(), lines)


def _lines_of(source: Source, start: int, end: int) -> range:
    """The lines that a comment speaks of."""
    text = source.text
    begin = text.rfind("\n", 0, start) + 1
    if text[begin:start].strip():
        return range(source.lines.place(start)[0], source.lines.place(max(start, end - 1))[0] + 1)
    after = text.find("\n", end)
    rest = text[end : len(text) if after < 0 else after]
    if rest.strip():  # /* opsmith: allow(...) */ code
        first = source.lines.place(end)[0]
        return range(first, first + 1)
    first = _next_code(source, end)
    line = source.lines.place(first)[0]
    directive = next((span for span in source.directives if span[0] <= first < span[1]), None)
    last = source.lines.place(directive[1])[0] if directive else line  # a macro of several lines is one
    return range(line, last + 1)


def _next_code(source: Source, position: int) -> int:
    """The next character after a position that is neither white space nor in a comment."""
    text = source.text
    comments = {comment.start: len(comment.text) for comment in source.comments}
    while position < len(text):
        if position in comments:
            position += comments[position]
        elif text[position].isspace():
            position += 1
        else:
            break
    return position


def _unknown(source: Source, allow: _Allow, known: Collection[str]) -> Finding:
    line, column = source.lines.place(allow.start)
    if not allow.rule:
        message = "The comment allows no rule: it names none in brackets."
    else:
        message = f"There is no rule {allow.rule!r} to allow."
    near = difflib.get_close_matches(allow.rule, known, n=1)
    listed = "Write // opsmith: allow(rule); `opsmith lint --rules` lists the rules."
    remedy = f"Did you mean {near[0]}?" if near else listed
    return Finding(source.path, line, column, UNKNOWN, message, remedy)


def _unused(source: Source, allow: _Allow) -> Finding:
    line, column = source.lines.place(allow.start)
    where = "in this file" if allow.lines is None else "on that line"
    return Finding(
        source.path, line, column, UNUSED, f"{allow.rule} is allowed, and not broken {where}.", "Remove the comment."
    )
