"""What a rule is: a name, a reason, a function that finds where a source breaks it, and examples in its docstring."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..cuda_text.code import Code
from .source import Source

_EXAMPLE = re.compile(r"^(Bad|Good):\n\n((?:    .*\n|\n)+)", re.MULTILINE)


@dataclass(frozen=True)
class Problem:
    """A place where a rule is broken: a token of some code."""

    code: Code
    index: int
    message: str
    remedy: str


Check = Callable[[Source], Iterator[Problem]]


@dataclass(frozen=True)
class Rule:
    """`reason` is one sentence: what goes wrong where the rule is broken."""

    name: str
    reason: str
    check: Check

    def examples(self, kind: str) -> list[str]:
        """The 'Bad' or the 'Good' code of its docstring."""
        text = inspect.cleandoc(self.check.__doc__ or "") + "\n"
        return [textwrap.dedent(code).strip() + "\n" for title, code in _EXAMPLE.findall(text) if title == kind]


def rule(reason: str) -> Callable[[Check], Rule]:
    """Makes a function a rule, which has the function's name."""
    return lambda check: Rule(check.__name__.replace("_", "-"), reason, check)
