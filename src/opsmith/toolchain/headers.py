"""Read the author's own headers, so that editing one changes the cache key."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# Includes inside comments or disabled branches match too: an extra header in the key costs a rebuild at worst, a
# missing one a stale artifact. An include spelled by a macro cannot be seen.
_INCLUDE = re.compile(r'(?:#\s*(?:include|include_next|import)|\b__has_include(?:_next)?\s*\()\s*([<"])([^<>"\n]+)[>"]')


def included_files(source_text: str, directory: Path | None, include_dirs: Iterable[Path] = ()) -> dict[str, bytes]:
    """The contents of every header that ``source_text`` includes from ``directory`` (its own) or ``include_dirs``.

    Headers are followed into the headers they include. What is not found there (the system's, torch's) is left out.
    Names tell the number of the directory a header was found under and the way from there: the same on every machine.
    """
    own = [] if directory is None else [directory]
    roots = [(f"<{number}>", str(root)) for number, root in enumerate((*own, *include_dirs))]
    found: dict[str, bytes] = {}
    seen: set[tuple[int, int]] = set()
    pending: list[tuple[list[tuple[str, str]], list[tuple[str, str]]]] = [(_includes(source_text), roots[: len(own)])]
    while pending:
        includes, beside = pending.pop()
        for quote, spelling in includes:
            # Every file of that name and not the first alone: #include_next goes on to the next.
            for place, root in (*beside, *roots) if quote == '"' else roots:
                path = os.path.join(root, spelling)
                header = _header(path)
                if header is None or header.file in seen:
                    continue
                seen.add(header.file)
                name = f"{place}/{spelling}"
                found[name] = header.contents
                pending.append((header.includes, [(os.path.dirname(name), os.path.dirname(path))]))
    return found


class _Header(NamedTuple):
    file: tuple[int, int]  # what the system knows it by, under whatever name
    contents: bytes
    includes: list[tuple[str, str]]


def _header(path: str) -> _Header | None:
    try:
        found = os.stat(path)
        return _parsed(path, (found.st_dev, found.st_ino), found.st_mtime_ns, found.st_size)
    except OSError:  # not there, a directory, unreadable: the compiler will say so if it matters
        return None


@functools.lru_cache(maxsize=1024)
def _parsed(path: str, file: tuple[int, int], modified: int, size: int) -> _Header:
    """A header as it is at this time: every kernel of a process includes the same few."""
    contents = Path(path).read_bytes()
    return _Header(file, contents, _includes(contents.decode(errors="replace")))


def _includes(text: str) -> list[tuple[str, str]]:
    """What a text includes, as (quote, spelling). Few lines can: the others need not be searched."""
    lines = (line for line in text.splitlines() if "include" in line or "import" in line)
    return [match for line in lines for match in _INCLUDE.findall(line)]
