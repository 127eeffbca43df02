"""Run a compiler on one job in a private directory, and give each way it can fail its name."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import (
    CompileError,
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
# Less than this left on the disk, and whatever the compiler says, it had nowhere to write.
_TOO_LITTLE_SPACE = 256 * 1024


def invoke(
    compiler: Compiler,
    arguments: Sequence[str],
    *,
    workdir: Path,
    output: Path,
    label: str,
    own_directories: Iterable[Path] = (),
    is_text: bool = False,
) -> dict[str, object]:
    """Compile; return the facts for the artifact's provenance.

    Raises CompileError when the source is at fault, a CompilerBrokenError when the compiler is, and OSError with ENOSPC
    when the disk is (the cache then falls back to another directory). The author's files are in ``own_directories``.
    """
    temporary = workdir / "tmp"
    temporary.mkdir(exist_ok=True)
    command = [*compiler.command, *arguments]
    # Compilers put their intermediate files into TMPDIR: in here, a killed one leaves no litter elsewhere. The C locale
    # keeps their words the ones matched below.
    environment = {**os.environ, "TMPDIR": str(temporary), "LC_ALL": "C"}
    outcome = run(command, cwd=workdir, env=environment)
    if outcome.status != 0:
        raise _failure(compiler, command, outcome, workdir, label, own_directories)
    if not (output.is_file() if is_text else _is_elf(output)):
        raise CompilerNoOutputError(
            compiler, command, f"reported success, but {output.name} is missing or no ELF file", outcome.words
        )
    return {"compiler": str(compiler), "command": command}


def _failure(
    compiler: Compiler,
    command: Sequence[str],
    outcome: Outcome,
    workdir: Path,
    label: str,
    own_directories: Iterable[Path],
) -> Exception:
    words = outcome.words
    if _DISK_FULL.search(words) or _free_bytes(workdir) < _TOO_LITTLE_SPACE:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if outcome.status == -9 or _OUT_OF_MEMORY.search(words):
        found = "was killed, as the kernel does when memory runs out" if outcome.status == -9 else "ran out of memory"
        return CompilerOutOfMemoryError(compiler, command, f"{found} while compiling {label}", words)
    if outcome.status < 0:
        return CompilerCrashedError(
            compiler, command, f"was ended by {outcome.signal_name} while compiling {label}", words
        )
    if _CRASHED.search(words):
        return CompilerCrashedError(compiler, command, f"reports an error inside itself while compiling {label}", words)
    errors = parse(words, own_directories, workdir)
    if not errors and outcome.signal_name:
        return CompilerCrashedError(
            compiler,
            command,
            f"ended with status {outcome.status} ({outcome.signal_name}) while compiling {label}",
            words,
        )
    if not words.strip():
        return CompilerSilentError(
            compiler, command, f"failed with exit status {outcome.status} and without a word while compiling {label}"
        )
    return CompileError(label, compiler, command, errors, words)


def _free_bytes(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except FileNotFoundError:
        return False
