"""Show on stderr what is being built, once it has taken longer than a second."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

PATIENCE_SECONDS = 1.0
_REDRAW_SECONDS = 0.2

_draw_lock = threading.Lock()
_visible: list[Progress] = []
"""Builds past their first second, in the order they became visible: threads may build at once and share one line."""


class Progress:
    """The state of one build, for the progress line. ``activity`` may be changed while it runs."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.activity = f"building {label}"
        self.started = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="opsmith-progress", daemon=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def _watch(self) -> None:
        if self._done.wait(PATIENCE_SECONDS):
            return
        with _draw_lock:
            _visible.append(self)
            if not _on_terminal():
                _write(f"opsmith: {self.activity} ...\n")
        while _on_terminal():
            with _draw_lock:
                _redraw()
            if self._done.wait(_REDRAW_SECONDS):
                return

    def _stop(self, outcome: str) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        with _draw_lock:
            if self not in _visible:
                return
            _visible.remove(self)
            clear = "\r\x1b[2K" if _on_terminal() else ""
            _write(f"{clear}opsmith: {self.label} {outcome} after {self.seconds:.1f} s\n")
            if _visible and _on_terminal():
                _redraw()


@contextlib.contextmanager
def progress(label: str) -> Iterator[Progress]:
    """Show the progress of one build: nothing for the first second, and nothing at all if OPSMITH_QUIET is set."""
    task = Progress(label)
    if os.environ.get("OPSMITH_QUIET", "0") in ("", "0"):
        task._thread.start()
    try:
        yield task
    except BaseException:
        task._stop("failed")
        raise
    task._stop("ready")


def _redraw() -> None:
    first = _visible[0]
    more = f" (and {len(_visible) - 1} more)" if len(_visible) > 1 else ""
    line = f"opsmith: {first.activity}{more} ... {first.seconds:.0f} s"
    _write("\r\x1b[2K" + line[: _terminal_width() - 1])


def _terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80  # serial terminals report 0
    except (OSError, ValueError, AttributeError):
        return 80


def _on_terminal() -> bool:
    try:
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # no stderr, or a closed one
        return False


def _write(text: str) -> None:
    # A progress line must never make a build fail.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()
