"""Running GPU kernels on the CPU: what a kernel did wrong, and what cannot run there."""

from __future__ import annotations

from collections.abc import Sequence

from .base import LocatedError, OpsmithError, SourceLine, quoted

Triple = tuple[int, int, int]


class KernelFault(OpsmithError, RuntimeError):
    """An emulated kernel did something that stops a GPU, or that a GPU lets pass with a wrong result.

    `kind` is one of 'out of bounds', 'misaligned access', 'uninitialised shared memory', 'partial barrier', 'absent
    block', 'inactive lane', 'data race', 'signed overflow', 'hang', 'failed assertion', 'write to a constant', 'bad
    memory access', 'division by zero', 'stack overflow', 'illegal instruction', 'C++ exception', 'use after free', 'bad
    free'.
    `file` and `line` are the author's; `block` and `thread` are indices, as the kernel sees them.
    """

    def __init__(
        self,
        kernel: str,
        kind: str,
        what: str,
        file: str | None,
        line: int | None,
        block: Triple | None,
        thread: Triple | None,
        notes: Sequence[str] = (),
    ) -> None:
        self.kernel = kernel
        self.kind = kind
        self.file = file
        self.line = line
        self.block = block
        self.thread = thread
        place = f"{file}:{line}" if file else "a place that is not recorded"
        who = (f", block {block}" if block is not None else "") + (f", thread {thread}" if thread is not None else "")
        text = SourceLine.at(file, line).text if file and line else ""
        shown = [f"    {text}"] if text else []
        super().__init__("\n".join([f"{kernel}: {kind} at {place}{who}: {what}.", *shown, *notes]))


class EmulationError(LocatedError, RuntimeError):
    """A kernel cannot be run on the CPU, or failed there."""

    def __init__(self, kernel: str, what: str, line: object = "") -> None:
        super().__init__(f"{kernel}, emulated on the CPU: {what}.", line)


class UnsupportedFeatureError(OpsmithError, NotImplementedError):
    """A source uses a part of CUDA that opsmith's emulator does not run."""

    def __init__(self, label: str, feature: str, line: int | None, file: str | None = None) -> None:
        self.feature = feature
        self.line = line
        where = f" (line {line}{f' of {file}' if file else ''})" if line else ""
        super().__init__(
            f"opsmith's emulator does not run {feature}, which {label} uses{where}. Run it on a GPU, or put it behind "
            "`#if defined(__CUDA_ARCH__)` with plain C++ in the #else branch, which the emulator takes."
            f"{quoted(SourceLine.at(file or label, line)) if line else ''}"
        )
