"""Find the errors and the author's own lines in a compiler's output, without the flood of template notes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# g++ and clang++:  kernel.cpp:12:5: error: 'x' was not declared in this scope
# nvcc and NVRTC:   kernel.cu(12): error: identifier "x" is undefined
# A text without a file has a name in angle brackets, which may have a colon in it.
_ERROR = re.compile(
    r"^(?P<file><[^>\n]*>|[^\s:(][^:(]*)(?::(?P<line>\d+)(?::(?P<column>\d+))?|\((?P<edg_line>\d+)\)):"
    r" (?:fatal |catastrophic )?error(?: #[\w-]+)?: (?P<message>.*)$"
)
# How the author's code leads to an error inside a header: before the error with g++, after it with the others.
_LED_HERE = (
    re.compile(r"^(?P<file><[^>\n]*>|[^\s:][^:]*):(?P<line>\d+)(?::\d+)?:\s+(?:recursively )?required (?:from|by)"),
    re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+)(?::\d+)?: note: in instantiation of .*requested here"),
    re.compile(r"^(?:In file included from|\s+from) (?P<file><[^>\n]*>|[^:]+):(?P<line>\d+)"),
    re.compile(r"\bat line (?P<line>\d+) of (?P<file>\S+)"),
)
_CARET = re.compile(r"^[\s|]*[~^]*\^[~^]*\s*$")
_OTHER_MESSAGE = re.compile(r": (?:warning|note|remark)(?: #[\w-]+)?: ")


@dataclass(frozen=True)
class Diagnostic:
    """One error: where, the compiler's message, and the source line, with a caret where the compiler gives one."""

    file: str
    line: int
    column: int | None
    message: str
    excerpt: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")
        return f"{place}: error: {self.message}" + (f"\n{self.excerpt}" if self.excerpt else "")


def parse(log: str, own_directories: Iterable[Path], workdir: Path) -> list[Diagnostic]:
    """The errors in ``log``, those at the author's own lines first.

    Files in ``own_directories`` are the author's. An error inside another header is placed at the author's line that
    led there, if the compiler prints it. Generated files are in ``workdir``, which is not shown.
    """
    own = [os.path.join(os.path.abspath(directory), "") for directory in (*own_directories, workdir)]

    def is_own(file: str) -> bool:
        return os.path.abspath(os.path.join(workdir, file)).startswith(tuple(own))

    lines = log.splitlines()
    starts = [number for number, line in enumerate(lines) if _ERROR.match(line)]
    found: list[tuple[bool, Diagnostic]] = []
    for index, start in enumerate(starts):
        previous = starts[index - 1] + 1 if index else 0
        following = starts[index + 1] if index + 1 < len(starts) else len(lines)
        error = _ERROR.match(lines[start])
        assert error is not None
        file, line, message = error["file"], int(error["line"] or error["edg_line"]), error["message"]
        column = int(error["column"]) if error["column"] else None
        excerpt = _excerpt(lines[start + 1 : following])
        context = (*reversed(lines[previous:start]), *lines[start + 1 : following])
        if not is_own(file) and (cause := _author_line(context, is_own)):
            message = f"{message}\n(inside {file}:{line})"
            (file, line), column, excerpt = cause, None, ""
        excerpt = excerpt or _source_line(Path(workdir, file), line)
        shown = file.removeprefix(os.path.join(str(workdir), ""))
        found.append((is_own(file), Diagnostic(shown, line, column, message, excerpt)))
    found.sort(key=lambda pair: not pair[0])
    return list(dict.fromkeys(diagnostic for _, diagnostic in found))


def _author_line(context: Sequence[str], is_own: Callable[[str], bool]) -> tuple[str, int] | None:
    for line in context:
        for pattern in _LED_HERE:
            if (match := pattern.search(line)) and is_own(match["file"].strip('"')):
                return match["file"].strip('"'), int(match["line"])
    return None


def _excerpt(following: Sequence[str]) -> str:
    """The lines up to the caret, if one comes at once."""
    for number, line in enumerate(following[:4]):
        if _OTHER_MESSAGE.search(line):
            break
        if _CARET.match(line):
            return "\n".join(following[: number + 1])
    return ""


def _source_line(path: Path, line: int) -> str:
    try:
        text = path.read_text(errors="replace").splitlines()[line - 1]
    except (OSError, IndexError):
        return ""
    return f"{line:5d} | {text}"
