"""The author's files as the emulator's compiler reads them: translated, in a tree with the same layout.

A kernel's source includes headers with kernels in them, which are translated too. The compiler reads copies, in the
same places of another tree, so that they find each other; #line names the originals.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..cuda_text.declarations import KernelText, declarations_in
from ..errors import UnsupportedFeatureError
from ..toolchain.compile import include_flags
from ..toolchain.headers import included
from .translate import translated


@dataclass
class Mirror:
    """A source and the author's headers that it includes, by their absolute paths."""

    file: str
    directory: Path | None  # of quoted headers
    include_dirs: Sequence[Path]
    system_dirs: Sequence[Path]
    """Directories of headers that are not the author's, but part of the key."""
    translate: bool = True
    texts: dict[str, str] = field(default_factory=dict)
    others: dict[str, str | bytes] = field(default_factory=dict)  # opsmith's own headers, which are not copied
    dynamic_names: list[str] = field(default_factory=list)
    kernels: dict[str, KernelText] = field(default_factory=dict)
    # Of headers, which the compiler may never read: by the feature in the #error that it then reports.
    refusals: dict[str, UnsupportedFeatureError] = field(default_factory=dict)

    @property
    def own_directories(self) -> list[Path]:
        return [Path(self.file).parent, *([self.directory] if self.directory else []), *self.include_dirs]

    @property
    def contents(self) -> dict[str, str | bytes]:
        """All of it, as parts of a key."""
        own = {f"file {path}": text.encode(errors="surrogateescape") for path, text in self.texts.items()}
        return {**own, **self.others}

    def add_source(self, label: str, ending: str = "") -> None:
        """Add the file itself, followed by `ending`, and its headers.

        Raises UnsupportedFeatureError for what the source uses; what a header uses is reported when the compiler
        reads it."""
        contents = body = Path(self.file).read_text(errors="surrogateescape")
        if self.translate:
            body, self.dynamic_names = translated(contents, label)
        self.texts[self.file] = f'#line 1 "{self.file}"\n{body}\n{ending}'
        headers = self.add_headers(contents)
        if self.translate:
            self.kernels = declarations_in([contents, *headers]).kernels

    def add_headers(self, contents: str) -> list[str]:
        """Add the headers that a text includes. Returns the author's, as they are."""
        originals = []
        for header in included(contents, self.directory, [*self.include_dirs, *self.system_dirs]):
            place = os.path.abspath(header.path)
            if any(Path(place).is_relative_to(each) for each in self.system_dirs):
                self.others[header.name] = header.contents
                continue
            original = header.contents.decode(errors="surrogateescape")
            originals.append(original)
            self.texts[place] = f'#line 1 "{place}"\n{self._header(place, original) if self.translate else original}'
        return originals

    def write(self, workdir: Path) -> Path:
        """Write the tree; returns the source in it."""
        for path, contents in self.texts.items():
            place = _copy(workdir, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(contents, errors="surrogateescape")
        return _copy(workdir, self.file)

    def flags(self, workdir: Path, system: Iterable[Path] = ()) -> list[str]:
        """The compiler's flags for directories: those of the tree, then the originals, for headers that a macro
        names."""
        beside = [self.directory] if self.directory else []
        copies = [_copy(workdir, str(each)) for each in (*self.include_dirs, *beside)]
        quoted = [f"-iquote{_copy(workdir, str(each))}" for each in beside]
        return [*quoted, *include_flags([*copies, *beside, *self.include_dirs], [*self.system_dirs, *system])]

    def _header(self, path: str, contents: str) -> str:
        try:
            body, names = translated(contents, path, is_header=True)
        except UnsupportedFeatureError as refusal:
            feature = f"what header {len(self.refusals)} uses"
            self.refusals[feature] = refusal
            return f'#error "opsmith\'s emulator does not run {feature}"\n'
        self.dynamic_names += names
        return body


def _copy(workdir: Path, path: str) -> Path:
    """Where the tree has a file or a directory."""
    return workdir / "tree" / path.lstrip("/")
