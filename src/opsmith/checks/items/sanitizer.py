"""compute-sanitizer reports nothing: memcheck, racecheck, initcheck and synccheck, with torch's memory cache off."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import OpsmithError
from ...errors.base import exception_line
from ...operator import child_process
from ...toolchain import find_nvcc
from ...toolchain.process import run
from ...toolchain.settings import LINE_INFO
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..reproduction import not_importable, setup
from ..subject import Subject
from . import _gpu
from ._cases import accelerated, arguments_of, has_gradients, lines_with_kernel

LEVEL = "full"
ON = ("cuda",)
ORDER = 95
NAME = "compute-sanitizer"
MARK = "opsmith-sample"
"""The beginning of lines that announce the next sample."""
END = "end"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OPTIONS = {"memcheck": ("--padding", "256", "--report-api-errors", "no")}
"""A tensor's neighbour in memory is its own padding, so that an access one element past the end is found. torch probes
for driver functions that an older driver lacks; these errors are of no interest."""
SECONDS = 55.0
MOST_SAMPLES, MOST_ELEMENTS = 4, 1 << 12
QUIET_SECONDS = 0.05
"""After a sample, so that a tool can report on it before the next begins."""


def check(subject: Subject) -> str:
    if not accelerated(subject):
        raise Skipped("it has no kernel of its own")
    tool = find()
    if tool is None:
        raise Skipped(f"{NAME} is not installed: it comes with the CUDA toolkit")
    if reason := not_importable(subject.op):
        raise Skipped(f"{NAME} runs the op in a new process, and {reason}")
    runs = _runs(subject)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "samples.py"
        script.write_text(_script(subject, runs))
        with ThreadPoolExecutor(len(TOOLS)) as pool:
            outputs = dict(zip(TOOLS, pool.map(lambda name: _output(tool, name, script), TOOLS), strict=True))
    found = [each for name in TOOLS for each in findings(name, outputs[name])]
    # A bad access in torch's own kernel is caused by what the op has passed to it; its other findings are not the op's.
    found = [each for each in found if each.tool == "memcheck" or not each.is_of_a_library]
    if found:
        raise Failed(_message(runs, found))
    useless = {name: why for name, output in outputs.items() if (why := unusable(output))}
    if len(useless) == len(TOOLS):
        raise Skipped(f"{NAME} does not work here: {next(iter(useless.values()))}")
    done = f"{', '.join(name for name in TOOLS if name not in useless)} over {len(runs)} calls"
    return done + "".join(f"; not {name}: {why}" for name, why in useless.items())


def _runs(subject: Subject) -> list[tuple[Case, str]]:
    """Cases, each with the kernel that runs it. Few and small: a kernel runs up to a hundred times slower."""
    cases = [each for each in subject.cases(limit=MOST_ELEMENTS) if each.has_elements] or [subject.first_case()]
    cases = cases[:: max(1, len(cases) // MOST_SAMPLES)][:MOST_SAMPLES]
    return [(case, kernel) for kernel in _gpu.kernels_to_try(subject) for case in cases]


def _script(subject: Subject, runs: list[tuple[Case, str]]) -> str:
    """Every call in turn, each announced in the stream that the tool writes to."""
    lines = [*setup(subject.op, in_child=True), "import time"]
    for index, (case, kernel) in enumerate(runs):
        options = "" if has_gradients(subject, case) else ", gradients=False"
        call = [f"opsmith.checks.outputs(op, {arguments_of(case)}{options})", "torch.cuda.synchronize()"]
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


def _message(runs: list[tuple[Case, str]], found: list[Finding]) -> str:
    messages = []
    for each in found[:3]:
        case, kernel = runs[each.sample]
        where = f"kernel {kernel!r}: {case.name}" if kernel else case.name
        messages.append(f"{where if each.sample >= 0 else 'one of the samples'}: {each}")
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    hint = "" if any(each.line for each in found) else ". Compiled with -lineinfo, a kernel reports the line"
    return "; ".join(messages) + more + hint


# --- What a tool reports ----------------------------------------------------------------------------------------------

_BAR = re.compile(r"^={8,} ?(.*)$")
# Reports that are not about a fault in a kernel, or only warn of one.
_NO_FINDING = re.compile(
    r"COMPUTE-SANITIZER|Program hit|Warning|WARN|Info|INFO|.*SUMMARY|Leaked|Unused|Host API|Uninitialized access|"
    r"Error: (?!Race)|Target application"
)
# "at scale(float *, int)+0x70 in scale.cu:7", and as it was before 2024: "at 0x70 in scale.cu:7:scale(float *, int)".
_PLACE = re.compile(
    r"\bat\s+(?:0x[0-9a-f]+ in (?:(?P<old_line>[^:()<>]+:\d+):)?(?P<old>\S.*?)|"
    r"(?P<kernel>\S.*?)\+0x[0-9a-f]+(?: in (?P<line>\S+:\d+))?)\s*(?:\[\d+ hazards?\])?$"
)
_UNUSABLE = re.compile(r"Device not supported|Internal Sanitizer Error|Error: (?!Race|process )")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: ")
# Kernels of torch and its libraries. racecheck and initcheck are known to report the latter.
_LIBRARIES = re.compile(
    r"^(?:void\s+)?(?:at::|at_cuda_detail::|c10::|cub::|thrust::|cutlass|cublas|cudnn|cusparse|cusolver|cufft|magma|"
    r"nvjet_|gemm|gemv|dot_kernel|splitKreduce|sm\d+_|ampere_|volta_|hopper_|implicit_convolve|spin_kernel|flash::)"
)


@dataclass(frozen=True)
class Finding:
    """One fault that a tool found. `line` is '' unless the kernel was compiled with -lineinfo; `sample` is -1 if it was
    reported after all samples."""

    tool: str
    what: str
    kernel: str
    line: str
    sample: int
    count: int = 1

    @property
    def is_of_a_library(self) -> bool:
        return bool(_LIBRARIES.match(self.kernel))

    def __str__(self) -> str:
        place = f"{short(self.kernel)}{f' at {self.line}' if self.line else ''}"
        times = f", {self.count} times" if self.count > 1 else ""
        return f"{self.tool}: {self.what} in {place}{times}"


def find() -> Path | None:
    """Beside nvcc, under $CUDA_HOME or $CUDA_PATH, on PATH, or in /usr/local/cuda."""
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    with contextlib.suppress(OpsmithError):
        places.append(str(find_nvcc().path.resolve().parents[1]))
    for place in (*places, "/usr/local/cuda"):
        for folder in ("bin", "compute-sanitizer"):
            found = shutil.which(NAME, path=os.path.join(place, folder)) if place else None
            if found:
                return Path(found)
    found = shutil.which(NAME)
    return Path(found) if found else None


def findings(tool: str, output: str) -> list[Finding]:
    """The faults that a tool found, without duplicates, in the order of first occurrence."""
    counted: dict[Finding, int] = {}
    for each in _read(tool, output.splitlines()):
        counted[each] = counted.get(each, 0) + 1
    return [replace(each, count=count) for each, count in counted.items()]


def _read(tool: str, lines: Iterable[str]) -> Iterator[Finding]:
    """A report starts with a line that names the fault; the indented lines after it give the place, the thread, and so
    on. The first line about a race has the place too."""
    sample, what = -1, ""
    for line in lines:
        if line.startswith(MARK):
            number = line.split()[1]
            sample = -1 if number == END else int(number)
            continue
        bar = _BAR.match(line)
        if bar is None:
            continue
        text = bar[1]
        if not text.startswith(" "):
            what = "" if _NO_FINDING.match(text) else text.strip()
        place = _PLACE.search(text)
        if what and place:
            kernel = (place["kernel"] or place["old"]).strip()
            yield Finding(tool, _without_place(what), kernel, place["line"] or place["old_line"] or "", sample)
            what = ""


def _without_place(what: str) -> str:
    """Removes the location, which a Finding has as fields."""
    what = _PLACE.sub("", what).strip()
    what = re.sub(r"^(?:Error|ERROR): Race reported between (\w+) access$", r"race with a \1 access", what)
    return what.rstrip(".")


def unusable(output: str) -> str:
    """Why a tool that found nothing may not have checked everything: its own error, or the samples' end; or ''."""
    lines = output.strip().splitlines() or ["nothing"]
    bars = [bar[1].strip() for line in lines if (bar := _BAR.match(line))]
    for text in bars:
        if _UNUSABLE.match(text):
            return text
    if f"{MARK} {END}" not in lines:
        others = [line for line in lines if not _BAR.match(line)]
        end = exception_line("\n".join(others or lines))
        return f"the samples end with {end}"
    return "" if any(_SUMMARY.match(text) for text in bars) else "it gives no summary"


def short(kernel: str) -> str:
    """'scale' for 'void scale<float, 4>(const float *, int)'."""
    name = re.sub(r"^\s*void\s+", "", kernel)
    depth, kept = 0, ""
    for character in name.partition("(")[0] if not name.startswith("(") else name:
        depth += (character == "<") - (character == ">")
        if not depth and character != ">":
            kept += character
    return kept.strip() or kernel
