"""Where a CUDA source comes from: a file, or a text in the author's Python; and whether it has changed since."""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from ...cuda_text.declarations import SourceText, declarations_in
from ...errors import ConstantError, SourceNotFoundError
from ...toolchain import zipped
from ...toolchain.headers import IncludedFile, Stamp, included, settled, stamp

PACKAGE = str(Path(__file__).parents[2]) + os.sep
SUFFIXES = (".cu", ".cuh")


@dataclass(frozen=True)
class Origin:
    """A file, by its absolute path, or a text; with the Python file and line that named it."""

    path: str | None
    text: str | None
    python_file: str = field(compare=False)
    python_line: int = field(compare=False)

    @property
    def label(self) -> str:
        """What messages call it."""
        if self.path is not None:
            return os.path.basename(self.path)
        return f"<cuda_source at {os.path.basename(self.python_file)}:{self.python_line}>"

    @property
    def directory(self) -> str:
        """Where quoted headers are searched for first: beside the file, or beside the Python file of the text."""
        return os.path.dirname(os.path.abspath(self.path or self.python_file))

    @property
    def name(self) -> str:
        """The file name that the compiler is given; for a text, messages show the label instead."""
        return self.path or os.path.join(self.directory, "<cuda_source>")

    def line_of_text(self) -> int | None:
        """The line of its Python file at which a text begins, if the file contains it verbatim. Errors then name lines
        of the file."""
        if not self.text:
            return None
        linecache.checkcache(self.python_file)
        whole = "".join(linecache.getlines(self.python_file))
        found: int | None = None
        position = whole.find(self.text)
        while position >= 0:
            line = whole.count("\n", 0, position) + 1
            if found is not None and line > self.python_line:  # of several, the last before the call
                break
            found = line
            position = whole.find(self.text, position + 1)
        return found


def locate(source: str | os.PathLike[str], caller: FrameType) -> Origin:
    """The origin of what was given to cuda_source: a path if it looks like one. Raises SourceNotFoundError."""
    python_file, line = caller.f_code.co_filename, caller.f_lineno
    if isinstance(source, str) and not _is_path(source, python_file):
        return Origin(None, source, python_file, line)
    path = resolved(source, python_file)
    if not os.path.isfile(path):
        for each in (path, *_in_zip(source, python_file)):
            if (file := zipped.as_file(Path(each))) is not None:
                return Origin(str(file), None, python_file, line)
        looked = dict.fromkeys((os.path.abspath(os.fspath(source)), *_beside(source, python_file)))
        reason = (
            f"it is not there; looked for {' and '.join(looked)}" if not os.path.exists(path) else "it is not a file"
        )
        raise SourceNotFoundError(os.fspath(source), "opsmith.cuda_source", reason)
    return Origin(path, None, python_file, line)


def resolved(path: str | os.PathLike[str], python_file: str) -> str:
    """A path from the current directory, or else from that of the Python file."""
    here = os.path.abspath(os.fspath(path))
    return next((each for each in (here, *_beside(path, python_file)) if os.path.exists(each)), here)


def _beside(path: str | os.PathLike[str], python_file: str) -> tuple[str, ...]:
    if os.path.isabs(os.fspath(path)) or not os.path.exists(python_file):  # a notebook's cell is not a file
        return ()
    return (os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(python_file)), os.fspath(path))),)


def _in_zip(source: str | os.PathLike[str], python_file: str) -> tuple[str, ...]:
    """Beside a Python file that is itself inside a zip file."""
    return (os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(python_file)), os.fspath(source))),)


def _is_path(source: str, python_file: str) -> bool:
    if "\n" in source or "\0" in source:
        return False
    if source.endswith(SUFFIXES) or os.path.exists(resolved(source, python_file)):
        return True
    # Every line of C++ has one of these. Other strings are taken for paths, and the error says that there is no file.
    return not any(letter in source for letter in "{}();#")


@dataclass
class _Watched:
    """A file as it was read."""

    path: str
    stamp: Stamp
    contents: bytes
    settled: bool = False

    def __post_init__(self) -> None:
        _, inode, modified, size = self.stamp
        self._known = modified, inode, size  # every launch compares them: what most edits change comes first

    def changed(self) -> bool:
        try:
            now = os.stat(self.path)
        except OSError:
            return True
        if (now.st_mtime_ns, now.st_ino, now.st_size) != self._known:
            return True
        if self.settled:
            return False
        try:
            same = Path(self.path).read_bytes() == self.contents
        except OSError:
            return True
        self.settled = settled(self.stamp)
        return not same


@dataclass(frozen=True)
class Snapshot:
    """A source and its headers as they were at one time."""

    origin: Origin = field(compare=False)
    text: str
    headers: Sequence[IncludedFile]
    watched: Sequence[_Watched] = field(compare=False, repr=False)

    @functools.cached_property
    def found(self) -> SourceText:
        own = [h for h in self.headers if not os.path.abspath(h.path).startswith(PACKAGE)]
        return declarations_in([self.text, *(header.contents.decode(errors="replace") for header in own)])

    @functools.cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.text.encode(errors="replace"))
        for header in self.headers:
            digest.update(b"\0%d\0" % len(header.contents) + header.contents)
        return digest.hexdigest()

    def unit(self, name: str | None) -> str | None:
        """The unit that a kernel is compiled in: None for the plain kernels, which are compiled together; its own name
        for an instance of a template and for a kernel that only the compiler finds."""
        text = self.found.kernels.get(name) if name is not None else None
        return None if name is None or (text is not None and text.template is None) else name

    def declared(self, keyword: str, name: str, text: str = "") -> str:
        """'scale.cu:3: __global__ void scale(float* x)': where `keyword` declares a name, with that line or with `text`
        instead. Only `text` for a name that a macro declares."""
        base = re.escape(name.partition("<")[0].rpartition("::")[2])
        declaration = re.compile(
            rf"//[^\n]*|/\*.*?\*/|\b{keyword}\b[^;{{}}]*?\b(?P<name>{base})\s*[(\[;={{,]", re.DOTALL
        )
        for label, first, contents in self._files():
            for found in declaration.finditer(contents):
                if found["name"]:
                    line = contents.count("\n", 0, found.start("name"))
                    return f"{label}:{first + line}: {text or contents.splitlines()[line].strip()}"
        return text

    def constant_error(self, name: str, what: str) -> ConstantError:
        return ConstantError(self.origin.label, name, what, self.declared("__constant__", name))

    def _files(self) -> Iterator[tuple[str, int, str]]:
        """(what messages call it, the number of its first line, contents) of the source and of each header."""
        first = 1 if self.origin.path else self.origin.line_of_text()
        in_python = first is not None and not self.origin.path
        label = os.path.basename(self.origin.python_file) if in_python else self.origin.label
        yield label, first or 1, self.text
        for header in self.headers:
            yield os.path.basename(header.path), 1, header.contents.decode(errors="replace")

    def changed(self) -> bool:
        """Whether a file has changed since it was read."""
        for file in self.watched:  # noqa: SIM110  (every launch does this, and any() takes twice the time)
            if file.changed():
                return True
        return False


def take(origin: Origin, include_dirs: Sequence[Path], also_included: Sequence[str] = ()) -> Snapshot:
    """The source as it is now. Files of opsmith's own package are not watched: they do not change."""
    watched: list[_Watched] = []
    if origin.path is None:
        text = origin.text or ""
    else:
        at = stamp(origin.path)
        try:
            contents = Path(origin.path).read_bytes()
        except OSError as error:
            raise SourceNotFoundError(origin.path, "opsmith.cuda_source", error.strerror or str(error)) from error
        text = contents.decode("utf-8-sig", errors="replace")
        watched.append(_Watched(origin.path, at or (0, 0, 0, 0), contents))  # new: check it again
    before = "".join(f'#include "{header}"\n' for header in also_included)
    headers = included(before + text, Path(origin.directory), include_dirs)
    watched += [_Watched(header.path, header.stamp, header.contents) for header in headers]
    own = [file for file in watched if not os.path.abspath(file.path).startswith(PACKAGE)]
    return Snapshot(origin, text, headers, own)
