"""Run a compiler in a private directory, with a named error for each way it can fail."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import (
    CompileError,
    CompilerBrokenError,
    CompilerCrashedError,
    CompilerNoOutputError,
    CompilerOutOfMemoryError,
    CompilerSilentError,
)
from .diagnostics import parse
from .find import Compiler
from .process import Outcome, run

_DISK_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|File (?:too large|size limit exceeded)|Read-only file system"
)
_OUT_OF_MEMORY = re.compile(
    r"^[^\s:]+: (?:(?:fatal |internal compiler )?error: )?"
    r"(?:out of memory|virtual memory exhausted|memory exhausted|cannot allocate memory|Killed)"
    r"|^LLVM ERROR: out of memory|died due to signal 9\b|terminate called .*std::bad_alloc",
    re.IGNORECASE | re.MULTILINE,
)
_CRASHED = re.compile(
    r"internal compiler error|^PLEASE submit a bug report|died due to signal|signal terminated program|^LLVM ERROR:",
    re.MULTILINE,
)
# With less than this left on the disk, the compiler had nowhere to write, whatever its message.
_TOO_LITTLE_SPACE = 256 * 1024


def invoke(
    compiler: Compiler,
    arguments: Sequence[str],
    *,
    workdir: Path,
    output: str,
    label: str,
    own_directories: Iterable[Path] = (),
    is_text: bool = False,
) -> dict[str, object]:
    """Compile to ``workdir / output``; return the facts for the artifact's provenance.

    Raises CompileError when the source is at fault, a CompilerBrokenError when the compiler is, and OSError with ENOSPC
    when the disk is (the cache then falls back to another directory). The author's files are in ``own_directories``.
    """
    temporary = workdir / "tmp"
    temporary.mkdir(exist_ok=True)
    command = [*compiler.command, *arguments]
    # Compilers put their intermediate files into TMPDIR: in here, a killed one leaves no litter elsewhere. The C locale
    # keeps their messages in the language that is matched below.
    environment = {**os.environ, "TMPDIR": str(temporary), "LC_ALL": "C"}
    outcome = run(command, cwd=workdir, env=environment)
    if outcome.status != 0:
        if _DISK_FULL.search(outcome.output) or shutil.disk_usage(workdir).free < _TOO_LITTLE_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        errors = parse(outcome.output, own_directories, workdir)
        if failure := _failure_of_compiler(outcome, label, bool(errors)):
            error, what = failure
            raise error(compiler, command, what, outcome.output)
        raise CompileError(label, compiler, command, errors, outcome.output)
    path = workdir / output
    if not path.is_file() or not (is_text or path.read_bytes().startswith(b"\x7fELF")):
        what = f"reported success, but {output} is missing or not an ELF file"
        raise CompilerNoOutputError(compiler, command, what, outcome.output)
    return {"compiler": str(compiler), "command": command}


def _failure_of_compiler(
    outcome: Outcome, label: str, rejects_source: bool
) -> tuple[type[CompilerBrokenError], str] | None:
    """The error for a compiler that failed itself, and what it did; None when it rejects the source."""
    status, output, signal = outcome.status, outcome.output, outcome.signal_name
    if status == -9:
        found = f"was killed, as the kernel does when memory runs out, while compiling {label}"
        return CompilerOutOfMemoryError, found
    if _OUT_OF_MEMORY.search(output):
        return CompilerOutOfMemoryError, f"ran out of memory while compiling {label}"
    if status < 0:
        return CompilerCrashedError, f"was ended by {signal} while compiling {label}"
    if _CRASHED.search(output):
        return CompilerCrashedError, f"reports an internal error while compiling {label}"
    if signal and not rejects_source:
        return CompilerCrashedError, f"ended with status {status} ({signal}) while compiling {label}"
    if not output.strip():
        return CompilerSilentError, f"failed with exit status {status} and without any message while compiling {label}"
    return None
