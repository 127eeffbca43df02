"""compute-sanitizer reports nothing: memcheck, racecheck, initcheck and synccheck, with torch's memory cache off."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ...operator import child_process
from ...toolchain.process import run
from ...toolchain.settings import LINE_INFO
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..reproduction import not_importable, setup
from ..subject import Subject
from . import _gpu, _sanitizer
from ._choice import accelerated, has_gradients, outputs_of
from ._sanitizer import END, MARK, Finding

LEVEL = "full"
ON = ("cuda",)
ORDER = 95
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OPTIONS = {"memcheck": ("--padding", "256", "--report-api-errors", "no")}
"""A tensor's neighbour in memory is its own padding, so that one element beyond is found. Torch probes for functions of
the driver that an older one has not, which are errors of no interest."""
SECONDS = 55.0
MOST_SAMPLES, MOST_ELEMENTS = 4, 1 << 12
QUIET_SECONDS = 0.05
"""After a sample, so that what a tool has to say of it is said before the next begins."""


@dataclass(frozen=True)
class _Run:
    """One call of the op in the process that is watched."""

    case: Case
    choice: str
    gradients: bool

    @property
    def name(self) -> str:
        return f"{self.case.name}{_gpu.by(self.choice)}"


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
            outputs = dict(zip(TOOLS, pool.map(lambda name: _watched(tool, name, script), TOOLS), strict=True))
    found = [each for name in TOOLS for each in _of_the_op(name, outputs[name])]
    if found:
        raise _failed(subject, runs, found)
    useless = {name: why for name, said in outputs.items() if (why := _sanitizer.unusable(said))}
    if len(useless) == len(TOOLS):
        raise Skipped(f"{_sanitizer.NAME} does not work here: {next(iter(useless.values()))}")
    done = f"{', '.join(name for name in TOOLS if name not in useless)} over {len(runs)} calls"
    return done + "".join(f"; not {name}: {why}" for name, why in useless.items())


def _runs(subject: Subject) -> list[_Run]:
    """Few and small: a kernel runs up to a hundred times slower."""
    cases = [each for each in subject.cases(limit=MOST_ELEMENTS) if each.has_elements]
    if not cases:
        cases = [subject.first_case()]
    steps = max(1, len(cases) // MOST_SAMPLES)
    return [
        _Run(case, choice, has_gradients(subject, case))
        for choice in _gpu.choices(subject)
        for case in cases[::steps][:MOST_SAMPLES]
    ]


def _script(subject: Subject, runs: list[_Run]) -> str:
    """Every call in turn, each announced on the stream that the tool writes to."""
    lines = [*setup(subject.op, in_child=True), "import time"]
    for index, each in enumerate(runs):
        call = [outputs_of(each.case, each.gradients), "torch.cuda.synchronize()"]
        lines += [
            *each.case.lines,
            "torch.cuda.synchronize()",
            f'print("{MARK} {index}", flush=True)',
            *_gpu.using(each.choice, call),
            f"time.sleep({QUIET_SECONDS})",
        ]
    return "\n".join([*lines, f'print("{MARK} {END}", flush=True)', ""])


def _watched(tool: Path, name: str, script: Path) -> str:
    """All that is said while the samples run under one tool."""
    # Each tool listens on ports of its own; processes that check at the same time must not meet there.
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
    """A bad access in torch's own kernel is made by what the op has handed it; all else in one is none of the op's."""
    return [each for each in _sanitizer.findings(tool, output) if tool == "memcheck" or not each.is_of_a_library]


def _failed(subject: Subject, runs: list[_Run], found: list[Finding]) -> Failed:
    messages = []
    for each in found[:3]:
        where = runs[each.sample].name if each.sample >= 0 else "one of the samples"
        messages.append(f"{where}: {each}")
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    hint = "" if any(each.line for each in found) else ". Compiled with -lineinfo, a kernel reports the line"
    lines = [
        f"report = opsmith.check(op, device='cuda', level='full', seed={subject.seed}, items=['sanitizer'])",
        "assert report.ok, report",
    ]
    return Failed("; ".join(messages) + more + hint, None, lines)
