"""Read the author's own headers, so that editing one changes the cache key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

# Includes inside comments or disabled branches match too: an extra header in the key costs a rebuild at worst, a
# missing one a stale artifact. An include spelled by a macro cannot be seen.
_INCLUDE = re.compile(r'(?:#\s*(?:include|include_next|import)|\b__has_include(?:_next)?\s*\()\s*([<"])([^<>"\n]+)[>"]')


def included_files(source_text: str, directory: Path | None, include_dirs: Iterable[Path] = ()) -> dict[str, bytes]:
    """The contents of every header that ``source_text`` includes from ``directory`` (its own) or ``include_dirs``.

    Headers are followed into the headers they include. What is not found there (the system's, torch's) is left out.
    Names are relative to the directory a header was found under, so they are the same on every machine.
    """
    own = [] if directory is None else [directory]
    roots = [Path(os.path.abspath(root)) for root in (*own, *include_dirs)]
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    pending: list[tuple[str, list[Path]]] = [(source_text, roots[:1] if own else [])]
    while pending:
        text, beside = pending.pop()
        for quote, spelling in _INCLUDE.findall(text):
            # Every file of that name and not the first alone: #include_next goes on to the next.
            for root in (*beside, *roots) if quote == '"' else roots:
                path = Path(os.path.abspath(root / spelling))
                contents = _read(path)
                real = os.path.realpath(path)
                if contents is None or real in seen:
                    continue
                seen.add(real)
                found[_portable_name(path, roots)] = contents
                pending.append((contents.decode(errors="replace"), [path.parent]))
    return found


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # not there, a directory, unreadable: the compiler will say so if it matters
        return None


def _portable_name(path: Path, roots: Sequence[Path]) -> str:
    """The way to ``path`` from the root that needs the fewest steps up: one that does not tell where the tree lies."""
    ways = [os.path.relpath(path, root) for root in roots]
    number = min(range(len(ways)), key=lambda i: Path(ways[i]).parts.count(".."))
    return f"<{number}>/{ways[number]}"
