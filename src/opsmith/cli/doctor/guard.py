"""Ask each probe in a process of its own, so that a crash, a hang or a library's noise is a finding and nothing worse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...toolchain.process import run
from . import child
from .finding import Finding, Line, Probe

PACKAGES = Path(child.__file__).parents[3]
"""The directory opsmith is imported from."""
_AT_ONCE = 4


def examine(probes: Sequence[Probe]) -> Iterator[Line]:
    """A line for each probe, in their order, as soon as it is known."""
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        yield from pool.map(ask, probes)


def ask(probe: Probe) -> Line:
    """The probe's answer, or what became of the process that was asked. Raises nothing."""
    started = time.monotonic()
    try:
        finding = _answer(probe)
    except subprocess.TimeoutExpired:
        finding = Finding("broken", f"did not answer within {probe.seconds:g} s, and was ended")
    except Exception as error:
        finding = Finding("broken", f"could not be asked: {type(error).__name__}: {error}")
    return Line.of(probe, finding, time.monotonic() - started)


def _answer(probe: Probe) -> Finding:
    with tempfile.TemporaryDirectory(prefix="opsmith-doctor-") as directory:
        answer = Path(directory, "answer.json")
        outcome = run(
            [sys.executable, "-m", child.__name__, probe.function, str(answer)],
            env=_environment(),
            timeout=probe.seconds,
        )
        if answer.exists():
            return Finding(**json.loads(answer.read_text()))
    last_words = outcome.words.strip().splitlines()[-1:] or ["without a word"]
    ending = f"was ended by {outcome.signal_name}" if outcome.signal_name else f"ended with status {outcome.status}"
    return Finding("broken", f"{ending}: {last_words[0]}")


def _environment() -> dict[str, str]:
    """The user's, in which the same opsmith is found and no build reports its progress over the report."""
    paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPSMITH_QUIET": "1"}
