"""Rules, the problems that they find in a source, and the findings that are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..cuda_text import Code
from .source import Source


@dataclass(frozen=True)
class Problem:
    """A token that breaks a rule."""

    code: Code
    index: int
    message: str
    remedy: str


@dataclass(frozen=True, order=True)
class Finding:
    """`line` and `column` count from 1, the column in characters. `remedy` is one line."""

    path: str
    line: int
    column: int
    rule: str
    message: str
    remedy: str

    @property
    def place(self) -> str:
        """'add.cu:12:3', which terminals and editors open."""
        return f"{self.path}:{self.line}:{self.column}"

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}: {self.message} {self.remedy}"


Check = Callable[[Source], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """`reason` is one sentence: what goes wrong where the rule is broken."""

    name: str
    reason: str
    check: Check


def rule(reason: str) -> Callable[[Check], Rule]:
    """Makes a rule of a function, and names it after the function."""
    return lambda check: Rule(check.__name__.replace("_", "-"), reason, check)
