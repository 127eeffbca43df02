"""compute-sanitizer: finds it, and turns its output into messages that an op's author can act on."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import OpsmithError
from ...toolchain import find_nvcc

NAME = "compute-sanitizer"
MARK = "opsmith-sample"
"""The beginning of lines that announce the next sample."""
END = "end"

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
        errors = [line for line in others if re.match(r"[\w.]*(Error|Exception|Fault)\b", line)]
        return f"the samples end with {(errors or others or lines)[-1]}"
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
