"""Run each probe in a separate process, so that a crash, a hang or a library's output cannot break the report."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from ..._lazy import import_by_name
from .._processes import stop
from .finding import Finding, Line, Probe

PACKAGES = Path(__file__).parents[3]  # the directory opsmith is imported from
_AT_ONCE = 8


def examine(probes: Sequence[Probe]) -> Iterator[Line]:
    """A line for each probe, in order, each as soon as it and those before it are known."""
    running: list[subprocess.Popen[bytes]] = []
    closed = threading.Event()

    def line(probe: Probe) -> Line:
        began = time.monotonic()
        try:
            finding = _run(probe, running, closed)
        except OSError as error:  # no memory for another process, or the limit of processes or files
            finding = Finding("broken", f"could not be started: {error}")
        return Line.of(probe, finding, time.monotonic() - began)

    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        lines = [pool.submit(line, probe) for probe in probes]
        try:
            for each in lines:
                yield each.result()
        finally:
            closed.set()
            for each in lines:
                each.cancel()
            for process in running:
                if process.poll() is None:
                    stop(process)


def _run(probe: Probe, running: list[subprocess.Popen[bytes]], closed: threading.Event) -> Finding:
    # Files in memory: doctor must also work where the disk is full.
    with os.fdopen(os.memfd_create("answer"), "w+b") as answer, os.fdopen(os.memfd_create("output"), "w+b") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "opsmith.cli.doctor.guard", probe.function, str(answer.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(answer.fileno(),),
            start_new_session=True,
            env=_environment(),
        )
        running.append(process)
        try:
            status = process.wait(0 if closed.is_set() else probe.seconds)
        except subprocess.TimeoutExpired:
            stop(process)
            return Finding("broken", f"did not answer within {probe.seconds:g} s, and was ended")
        answer.seek(0)
        with contextlib.suppress(ValueError, TypeError):  # it ended without an answer
            return Finding(**json.loads(answer.read()))
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    ending = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return Finding("broken", f"{ending}: {lines[-1]}" if lines else ending)


def _environment() -> dict[str, str]:
    """The user's, with this opsmith importable and without progress of builds."""
    paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPSMITH_QUIET": "1"}


# --- In the child process ---------------------------------------------------------------------------------------------


def main(function: str, descriptor: str) -> None:
    """Runs a probe and writes its finding to a file descriptor: `python -m opsmith.cli.doctor.guard` in the child."""
    # As an exception, SIGTERM lets the toolchain end the compiler it waits for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("was ended"))
    with os.fdopen(int(descriptor), "w") as answer:
        json.dump(asdict(find(function)), answer)
    # The finding is written: a library that crashes at interpreter shutdown changes nothing.
    os._exit(0)


def find(function: str) -> Finding:
    """The probe's finding; an exception is one too."""
    module, _, name = function.partition(":")
    try:
        finding: Finding = getattr(import_by_name(module), name)()
        return finding
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return Finding("broken", "needs torch", fix="see PyTorch's line")
        return Finding.of_error(error)
    except Exception as error:
        return Finding.of_error(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
