"""Read the author's own headers, so that editing one changes the cache key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

# Includes inside comments or disabled branches match too: an extra header in the key costs a rebuild at worst, a
# missing one a stale artifact. An include spelled by a macro cannot be seen.
_INCLUDE = re.compile(r'(?:#\s*(?:include|include_next|import)|\b__has_include(?:_next)?\s*\()\s*([<"])([^<>"\n]+)[>"]')


def included_files(source_text: str, directory: Path | None, include_dirs: Iterable[Path] = ()) -> dict[str, bytes]:
    """The contents of every header that ``source_text`` includes from ``directory`` (its own) or ``include_dirs``.

    Headers are followed into the headers they include. What is not found there (the system's, torch's) is left out.
    Names tell the number of the directory a header was found under and the way from there: the same on every machine.
    """
    own = [] if directory is None else [directory]
    roots = [(f"<{number}>", Path(root)) for number, root in enumerate((*own, *include_dirs))]
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    pending: list[tuple[str, list[tuple[str, Path]]]] = [(source_text, roots[: len(own)])]
    while pending:
        text, beside = pending.pop()
        for quote, spelling in _INCLUDE.findall(text):
            # Every file of that name and not the first alone: #include_next goes on to the next.
            for place, root in (*beside, *roots) if quote == '"' else roots:
                path = root / spelling
                real = os.path.realpath(path)
                if real in seen or (contents := _read(path)) is None:
                    continue
                seen.add(real)
                name = f"{place}/{spelling}"
                found[name] = contents
                pending.append((contents.decode(errors="replace"), [(os.path.dirname(name), path.parent)]))
    return found


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # not there, a directory, unreadable: the compiler will say so if it matters
        return None
