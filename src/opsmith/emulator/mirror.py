"""The author's files as the emulator's compiler sees them: translated, and laid out as they lie on the disk.

A kernel's source includes headers with kernels in them, which are translated like itself. The compiler is given copies,
in the same places of another tree, so that they find each other; #line tells it where the originals are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..cuda_text.declarations import KernelText, declarations_in
from ..errors import UnsupportedFeatureError
from ..toolchain.headers import included
from .translate import translated

TREE = "tree"


@dataclass
class Mirror:
    """A source and the author's headers that it includes, by their absolute paths."""

    source: str
    texts: dict[str, str] = field(default_factory=dict)
    others: dict[str, str | bytes] = field(default_factory=dict)  # opsmith's own headers, which stay where they are
    dynamic_names: list[str] = field(default_factory=list)
    kernels: dict[str, KernelText] = field(default_factory=dict)
    # Of headers, which the compiler may never come to: by the feature that it then says is not run.
    refusals: dict[str, UnsupportedFeatureError] = field(default_factory=dict)

    @property
    def contents(self) -> dict[str, str | bytes]:
        """All of it, as parts of a key."""
        own = {f"file {path}": text.encode(errors="surrogateescape") for path, text in self.texts.items()}
        return {**own, **self.others}

    def write(self, workdir: Path) -> Path:
        """Lays the tree out; returns the source in it."""
        for path, contents in self.texts.items():
            place = inside(workdir, Path(path))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(contents, errors="surrogateescape")
        return inside(workdir, Path(self.source))


def inside(workdir: Path, path: Path) -> Path:
    """Where the tree has a file or a directory."""
    return workdir / TREE / str(path).lstrip("/")


def mirrored(
    source: Path,
    include_dirs: Sequence[Path],
    system_dirs: Sequence[Path],
    label: str,
    translate: bool,
    ending: str = "",
) -> Mirror:
    """`system_dirs` hold headers that are not the author's, and yet parts of the key. `ending` comes after the source.

    Raises UnsupportedFeatureError for what the source uses; what a header uses is told when the compiler comes to it.
    """
    path = os.path.abspath(source)
    found = Mirror(path)
    contents = Path(path).read_text(errors="surrogateescape")
    body = contents
    if translate:
        body, found.dynamic_names = translated(contents, label)
    found.texts[path] = f'#line 1 "{path}"\n{body}\n{ending}'
    headers = add_headers(found, contents, source.parent, include_dirs, system_dirs, translate)
    if translate:
        found.kernels = declarations_in([contents, *headers]).kernels
    return found


def add_headers(
    mirror: Mirror,
    contents: str,
    directory: Path | None,
    include_dirs: Sequence[Path],
    system_dirs: Sequence[Path],
    translate: bool = True,
) -> list[str]:
    """Adds the headers that a text includes, `directory` being its own. Returns the author's, as they are."""
    originals = []
    for header in included(contents, directory, [*include_dirs, *system_dirs]):
        place = os.path.abspath(header.path)
        if any(Path(place).is_relative_to(each) for each in system_dirs):
            mirror.others[header.name] = header.contents
            continue
        original = header.contents.decode(errors="surrogateescape")
        originals.append(original)
        mirror.texts[place] = f'#line 1 "{place}"\n{_header(place, original, mirror) if translate else original}'
    return originals


def _header(path: str, contents: str, mirror: Mirror) -> str:
    try:
        body, names = translated(contents, path, is_header=True)
    except UnsupportedFeatureError as refusal:
        feature = f"what header {len(mirror.refusals)} uses"
        mirror.refusals[feature] = refusal
        return f'#error "opsmith\'s emulator does not run {feature}"\n'
    mirror.dynamic_names += names
    return body
