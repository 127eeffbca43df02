"""Read the author's own headers, so that editing one changes the cache key."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# Includes inside comments or disabled branches match too: an extra header in the key costs a rebuild at worst, a
# missing one a stale artifact. An include spelled by a macro is not found.
_INCLUDE = re.compile(r'(?:#\s*(?:include|include_next|import)|\b__has_include(?:_next)?\s*\()\s*([<"])([^<>"\n]+)[>"]')


Stamp = tuple[int, int, int, int]
"""Device, inode, time of change and size: while they stay the same, so do the file's contents, once settled."""

SETTLES_AFTER = 20_000_000
"""In nanoseconds. A file written twice within one tick of the kernel's clock, 10 ms at most, may keep its stamp."""


def stamp(path: str) -> Stamp | None:
    """The stamp of a file, which identifies its contents without reading them; None where there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def settled(of: Stamp) -> bool:
    """Whether an unchanged stamp proves that a file is unchanged."""
    return time.time_ns() - of[2] > SETTLES_AFTER


class IncludedFile(NamedTuple):
    """One of the author's headers, as it was when it was read."""

    name: str  # the number of its include directory and the path from there: the same on every machine
    path: str
    contents: bytes
    stamp: Stamp


def included_files(source_text: str, directory: Path | None, include_dirs: Iterable[Path] = ()) -> dict[str, bytes]:
    """The contents of the headers that ``included`` finds, by name."""
    return {header.name: header.contents for header in included(source_text, directory, include_dirs)}


def included(source_text: str, directory: Path | None, include_dirs: Iterable[Path] = ()) -> list[IncludedFile]:
    """Every header that ``source_text`` includes from ``directory`` (its own) or ``include_dirs``.

    The headers that they include are found too. Those of the system and of torch are left out.
    """
    own = [] if directory is None else [directory]
    roots = [(f"<{number}>", str(root)) for number, root in enumerate((*own, *include_dirs))]
    found: list[IncludedFile] = []
    seen: set[tuple[int, int]] = set()
    pending: list[tuple[list[tuple[str, str]], list[tuple[str, str]]]] = [(_includes(source_text), roots[: len(own)])]
    while pending:
        includes, beside = pending.pop()
        for quote, spelling in includes:
            # Every file of that name, not only the first: #include_next continues with the next.
            for place, root in (*beside, *roots) if quote == '"' else roots:
                path = os.path.join(root, spelling)
                header = _header(path)
                if header is None or header.stamp[:2] in seen:
                    continue
                seen.add(header.stamp[:2])
                name = f"{place}/{spelling}"
                found.append(IncludedFile(name, path, header.contents, header.stamp))
                pending.append((header.includes, [(os.path.dirname(name), os.path.dirname(path))]))
    return found


class _Header(NamedTuple):
    stamp: Stamp
    contents: bytes
    includes: list[tuple[str, str]]


def _header(path: str) -> _Header | None:
    at = stamp(path)
    if at is None:
        return None
    try:
        return _parsed(path, at) if settled(at) else _parsed.__wrapped__(path, at)
    except OSError:  # a directory, unreadable: the compiler reports it if it matters
        return None


@functools.lru_cache(maxsize=1024)
def _parsed(path: str, at: Stamp) -> _Header:
    """A header with this stamp, cached: every kernel of a process includes the same few."""
    contents = Path(path).read_bytes()
    return _Header(at, contents, _includes(contents.decode(errors="replace")))


def _includes(text: str) -> list[tuple[str, str]]:
    """The includes of a text, as (quote, spelling). Few lines contain one: the others need not be searched."""
    lines = (line for line in text.replace("\\\n", " ").splitlines() if "include" in line or "import" in line)
    return [match for line in lines for match in _INCLUDE.findall(line)]
