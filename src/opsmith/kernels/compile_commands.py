"""compile_commands.json: how clangd, the language server of editors, compiles the sources of an extension."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import OpsmithError
from ..toolchain import Recipe, editor_commands

PACKAGE = Path(__file__).parents[1]


def write(recipe: Recipe) -> None:
    """Enters the sources into build/compile_commands.json of their directories, where clangd looks for it.

    It is a convenience: if it cannot be written, no error is raised. opsmith's own sources have none.
    """
    with contextlib.suppress(OSError, OpsmithError, ValueError):
        commands = editor_commands(recipe, shlex.split(os.environ.get("CXX") or "c++"), _cuda_headers())
        for directory in dict.fromkeys(source.parent for source in commands):
            if not directory.is_relative_to(PACKAGE):
                _merge(directory, {str(s): command for s, command in commands.items() if s.parent == directory})


def _merge(directory: Path, commands: dict[str, list[str]]) -> None:
    file = directory / "build" / "compile_commands.json"
    entries = [
        {"directory": str(directory), "file": source, "arguments": command} for source, command in commands.items()
    ]
    file.parent.mkdir(exist_ok=True)
    with _locked(file.parent):
        before: list[Any] = json.loads(file.read_text()) if file.exists() else []
        kept = [entry for entry in before if entry["file"] not in commands]
        after = sorted([*kept, *entries], key=lambda entry: str(entry["file"]))
        if after != before:
            temporary = file.with_suffix(".temporary")  # one writer at a time, and readers never see half a file
            temporary.write_text(json.dumps(after, indent=1) + "\n")
            temporary.replace(file)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One writer at a time: each reads the entries of the others."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _cuda_headers() -> Sequence[Path]:
    """The toolkit's headers, as far as they are found without running nvcc."""
    nvcc = shutil.which(os.environ.get("NVCC") or "nvcc")
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    homes = [Path(nvcc).resolve().parents[1]] if nvcc else []
    homes += [Path(place) for place in places if place]
    return [home / "include" for home in homes if (home / "include" / "cuda_runtime.h").is_file()][:1]
