"""compute-sanitizer reports nothing: memcheck, racecheck, initcheck and synccheck, with torch's memory cache off."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...operator import child_process
from ...toolchain.process import run
from ...toolchain.settings import LINE_INFO
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..reproduction import not_importable, setup
from ..subject import Subject
from . import _gpu, _sanitizer
from ._cases import accelerated, has_gradients, lines_with_kernel, outputs_of
from ._sanitizer import END, MARK, Finding

LEVEL = "full"
ON = ("cuda",)
ORDER = 95
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OPTIONS = {"memcheck": ("--padding", "256", "--report-api-errors", "no")}
"""A tensor's neighbour in memory is its own padding, so that an access one element past the end is found. torch probes
for driver functions that an older driver lacks; these errors are of no interest."""
SECONDS = 55.0
MOST_SAMPLES, MOST_ELEMENTS = 4, 1 << 12
QUIET_SECONDS = 0.05
"""After a sample, so that a tool can report on it before the next begins."""

Run = tuple[Case, str]
"""A case, and the kernel that runs it."""


def check(subject: Subject) -> str:
    if not accelerated(subject):
        raise Skipped("it has no kernel of its own")
    tool = _sanitizer.find()
    if tool is None:
        raise Skipped(f"{_sanitizer.NAME} is not installed: it comes with the CUDA toolkit")
    if reason := not_importable(subject.op):
        raise Skipped(f"{_sanitizer.NAME} runs the op in a new process, and {reason}")
    runs = _runs(subject)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "samples.py"
        script.write_text(_script(subject, runs))
        with ThreadPoolExecutor(len(TOOLS)) as pool:
            outputs = dict(zip(TOOLS, pool.map(lambda name: _output(tool, name, script), TOOLS), strict=True))
    found = [each for name in TOOLS for each in _of_the_op(name, outputs[name])]
    if found:
        raise Failed(_message(runs, found))
    useless = {name: why for name, output in outputs.items() if (why := _sanitizer.unusable(output))}
    if len(useless) == len(TOOLS):
        raise Skipped(f"{_sanitizer.NAME} does not work here: {next(iter(useless.values()))}")
    done = f"{', '.join(name for name in TOOLS if name not in useless)} over {len(runs)} calls"
    return done + "".join(f"; not {name}: {why}" for name, why in useless.items())


def _runs(subject: Subject) -> list[Run]:
    """Few and small: a kernel runs up to a hundred times slower."""
    cases = [each for each in subject.cases(limit=MOST_ELEMENTS) if each.has_elements] or [subject.first_case()]
    cases = cases[:: max(1, len(cases) // MOST_SAMPLES)][:MOST_SAMPLES]
    return [(case, kernel) for kernel in _gpu.kernels_to_try(subject) for case in cases]


def _script(subject: Subject, runs: list[Run]) -> str:
    """Every call in turn, each announced in the stream that the tool writes to."""
    lines = [*setup(subject.op, in_child=True), "import time"]
    for index, (case, kernel) in enumerate(runs):
        call = [outputs_of(case, has_gradients(subject, case)), "torch.cuda.synchronize()"]
        lines += [
            *case.lines,
            "torch.cuda.synchronize()",
            f'print("{MARK} {index}", flush=True)',
            *lines_with_kernel(kernel, call),
            f"time.sleep({QUIET_SECONDS})",
        ]
    return "\n".join([*lines, f'print("{MARK} {END}", flush=True)', ""])


def _output(tool: Path, name: str, script: Path) -> str:
    """The output while the samples run under one tool."""
    # Each tool listens on its own ports, which must differ from those of other processes that check at the same time.
    port = 49152 + 16 * ((os.getpid() * len(TOOLS) + TOOLS.index(name)) % 900)
    command = [
        *(str(tool), "--tool", name, *OPTIONS.get(name, ())),
        *("--show-backtrace", "no", "--launch-timeout", "120", "--port", str(port)),
        *(sys.executable, str(script)),
    ]
    environment = {**child_process.environment(), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
    environment[LINE_INFO] = "1"  # findings then name the line of every kernel that opsmith compiles
    try:
        return run(command, env=environment, timeout=SECONDS).output
    except subprocess.TimeoutExpired:
        return f"nothing within {SECONDS:.0f} s"


def _of_the_op(tool: str, output: str) -> list[Finding]:
    """A bad access in torch's own kernel is caused by what the op has passed to it; other findings there are not the
    op's."""
    return [each for each in _sanitizer.findings(tool, output) if tool == "memcheck" or not each.is_of_a_library]


def _message(runs: list[Run], found: list[Finding]) -> str:
    messages = []
    for each in found[:3]:
        case, kernel = runs[each.sample]
        where = f"kernel {kernel!r}: {case.name}" if kernel else case.name
        messages.append(f"{where if each.sample >= 0 else 'one of the samples'}: {each}")
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    hint = "" if any(each.line for each in found) else ". Compiled with -lineinfo, a kernel reports the line"
    return "; ".join(messages) + more + hint
