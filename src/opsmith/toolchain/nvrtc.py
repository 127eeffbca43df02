"""Compile CUDA C++ text to a cubin with NVRTC, in this process and without a GPU, each build cached."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import CompileError, CompilerBrokenError, ToolMissingError, UnsupportedArchError
from .cache import Artifact, cache_key, find_prebuilt, obtain
from .compile import CXX_STANDARD
from .diagnostics import parse
from .find import Nvrtc, find_nvrtc, nvrtc_binding, torch_cuda_version
from .headers import included_files
from .settings import line_info

_CUBIN = "kernel.cubin"
_FILES = (_CUBIN,)
FACTS = "module"
"""In the provenance of a cubin: the other fields of a CudaModule."""
_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)")
FEATURES = "af"
"""The letters after an architecture: sm_90a has features of that GPU alone, sm_100f those of its family."""
_OLDEST = 75  # the first that CUDA 13 compiles for
_PRELUDE = "<opsmith>"
# What NVRTC calls the text that it generates from the requested names, a line each.
_NAME_MAP = "__nv_name_map"
_NAME = re.compile(r"^\s*#pragma nv_mangled_name (.*)$")
_LINE_INFO = re.compile(r"-(G|-device-debug|-?lineinfo|-generate-line-info)")
_ERROR = re.compile(r"^(?P<where>.*?): (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>.*)$")


@dataclass(frozen=True)
class CudaModule:
    """A cubin, with the facts that the compiler printed about it."""

    path: Path
    names: Mapping[str, str]  # symbols by the requested expressions
    refused: Mapping[str, str]  # the compiler's message by the group it rejected
    log: str


@dataclass(frozen=True)
class CudaProgram:
    """A CUDA source and everything that its compilation depends on."""

    source: str
    _: KW_ONLY
    arch: str
    """The GPU architecture: "sm_90"."""
    name: str
    """What errors call the source: the path of the author's file if there is one, and headers beside it are found."""
    label: str | None = None
    options: Sequence[str] = ()
    """NVRTC's own, as on its command line."""
    include_dirs: Sequence[Path] = ()
    expressions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """C++ expressions whose symbols are requested (`scale<float, 4>`, `&table`), in named groups; a group that the
    compiler rejects is left out and listed in ``CudaModule.refused``."""
    prelude: str = ""
    """Text that is included before the source and moves none of its lines."""
    line: tuple[int, str] | None = None
    """The line and file where the source's first line is. Like ``shown``, not part of the build's key."""
    shown: str | None = None
    """What errors call the source instead of ``name``."""

    def compile(self) -> CudaModule:
        """The cubin, prebuilt, cached or built now, with its symbols and the assembler's report on its resources.

        A prebuilt cubin of an earlier GPU of the same generation serves too; without an NVRTC that knows this GPU, so
        does prebuilt PTX, which the driver compiles. An architecture "compute_90" gives PTX.

        Raises CompileError, UnsupportedArchError, NvrtcNotFoundError, CudaHeadersNotFoundError,
        CudaVersionMismatchError.
        """
        while True:
            try:
                built = self._obtain([*self.options, *line_info()])
            except _Edited:
                continue
            facts = built.provenance[FACTS]
            return CudaModule(built.path(_CUBIN), facts["names"], facts["refused"], facts["log"])

    def _obtain(self, options: Sequence[str]) -> Artifact:
        headers = self._headers()

        def key(arch: str) -> str:
            return self._key(arch, options, headers)

        def prebuilt(architectures: Iterable[str]) -> Artifact | None:
            found = (find_prebuilt(key(arch), label=self._label, filenames=_FILES) for arch in architectures)
            return next(filter(None, found), None)

        def build(workdir: Path) -> dict[str, object]:
            found = find_nvrtc()
            include = [f"--include-path={directory}" for directory in (*self._own[1:], *found.include_dirs)]
            command = [*self._flags(self.arch, options), *include]
            _require_arch(found, self.arch)
            try:
                program, refused = self._compile(command)
            except _Rejected as rejected:
                raise self._error(rejected.log, found, command, workdir) from None
            if self._headers() != headers:
                raise _Edited
            (workdir / _CUBIN).write_bytes(program.code)
            facts = {"names": program.names, "refused": refused, "log": program.log}
            return {"compiler": f"{found} ({found.path})", "command": command, FACTS: facts}

        if found := prebuilt(_cubins(self.arch)):
            return found
        try:
            return obtain(key(self.arch), build, label=self._label, filenames=_FILES)
        except ToolMissingError:
            if found := prebuilt(_virtual(self.arch)):
                return found
            raise

    def _flags(self, arch: str, options: Sequence[str]) -> list[str]:
        named = any(re.match(r"--?std\b", option) for option in options)
        standard = () if named else (f"--std={CXX_STANDARD}",)
        report = ("--ptxas-options=-v",) if arch.startswith("sm_") else ()
        pre_include = (f"--pre-include={_PRELUDE}",) if self.prelude else ()
        return [f"--gpu-architecture={arch}", *standard, *report, *pre_include, *options]

    def _key(self, arch: str, options: Sequence[str], headers: Mapping[str, bytes]) -> str:
        # Source lines are part of the cubin only with line info.
        located = [self._line_directive()] if any(map(_LINE_INFO.match, options)) else []
        requested = [part for group, parts in self.expressions.items() for part in (group, *parts, "")]
        return cache_key(
            kind="cubin",
            sources={"source": self.source, **headers},
            flags=[*self._flags(arch, options), "--", self.prelude, *requested, *located],
            arch=arch,
            # A driver of an earlier CUDA major version may refuse it. torch's version comes first, because importing
            # NVRTC takes time and a cached cubin needs none.
            abi=f"cuda{(torch_cuda_version() or find_nvrtc().version).split('.')[0]}",
        )

    @property
    def _label(self) -> str:
        return self.label or os.path.basename(self.name)

    @property
    def _own(self) -> list[Path]:
        # NVRTC looks for quoted headers beside the program's name, so the key must include those too.
        return [Path(os.path.abspath(self.name)).parent, *(Path(each).absolute() for each in self.include_dirs)]

    def _line_directive(self) -> str:
        if self.line is None:
            return ""
        file = self.line[1].replace("\\", "\\\\").replace('"', '\\"')
        return f'#line {self.line[0]} "{file}"\n'

    def _headers(self) -> dict[str, bytes]:
        """The author's headers. Those that an option includes are part of the source."""
        included = "".join(f'#include "{header}"\n' for header in _pre_included(self.options))
        return included_files(included + self.source, self._own[0], self._own[1:])

    def _compile(self, command: Sequence[str]) -> tuple[_Program, dict[str, str]]:
        """The program of all groups of expressions that the compiler accepts, and its messages on the others."""
        wanted, refused = dict(self.expressions), dict[str, str]()
        headers = {_PRELUDE: self.prelude} if self.prelude else {}
        while True:
            parts = [part for group in wanted.values() for part in group]
            try:
                return _compile(self._line_directive() + self.source, self.name, command, headers, parts), refused
            except _Rejected as rejected:
                faults = _refused_names(rejected.log, wanted)
                if not faults:
                    raise
                refused.update(faults)
                wanted = {group: parts for group, parts in wanted.items() if group not in faults}

    def _error(self, log: str, found: Nvrtc, command: Sequence[str], workdir: Path) -> CompileError:
        errors = parse(log, self._own, workdir)
        errors = [error for error in errors if error.file != _NAME_MAP] or errors
        if self.shown:
            errors = [replace(error, file=self.shown) if error.file == self.name else error for error in errors]
            log = log.replace(self.name, self.shown)
        return CompileError(self._label, found, ["nvrtc", *command], errors, log)


class _Edited(Exception):
    """A header was saved while NVRTC read it, so the cubin does not match its key."""


class _Rejected(Exception):
    def __init__(self, log: str) -> None:
        self.log = log


@dataclass(frozen=True)
class _Program:
    code: bytes  # a cubin, or PTX
    names: dict[str, str]
    log: str


def _compile(
    source: str,
    name: str,
    command: Sequence[str],
    headers: Mapping[str, str],
    expressions: Sequence[str],
) -> _Program:
    nvrtc = nvrtc_binding()
    texts = [text.encode() for text in headers.values()]
    names = [spelling.encode() for spelling in headers]
    program = _value(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), len(texts), texts, names))
    try:
        for expression in expressions:
            _value(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(command), [option.encode() for option in command])
        log = bytes(_value(nvrtc.nvrtcGetProgramLogSize(program)))
        _value(nvrtc.nvrtcGetProgramLog(program, log))
        report = log.rstrip(b"\0").decode(errors="replace").strip()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _Rejected(report or status.name)
        kind = "PTX" if any(each.startswith("--gpu-architecture=compute_") for each in command) else "CUBIN"
        code = bytes(_value(getattr(nvrtc, f"nvrtcGet{kind}Size")(program)))
        _value(getattr(nvrtc, f"nvrtcGet{kind}")(program, code))  # fills the bytes in place, as documented
        symbols = {each: _value(nvrtc.nvrtcGetLoweredName(program, each.encode())).decode() for each in expressions}
        return _Program(code, symbols, report)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _refused_names(log: str, wanted: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The groups of names that the compiler rejects, with its first message on each; none where the source itself is
    at fault."""
    lines = log.splitlines()
    found: dict[str, str] = {}
    for number, line in enumerate(lines):
        error = _ERROR.match(line)
        if error is None:
            continue
        at = _NAME.match(lines[number + 1]) if number + 1 < len(lines) else None
        group = next((group for group, parts in wanted.items() if at and at[1].strip() in parts), None)
        if not error["where"].startswith(f"{_NAME_MAP}(") or group is None:
            return {}
        found.setdefault(group, error["message"])
    return found


def require_architectures(architectures: Iterable[str]) -> None:
    """Raises what CudaProgram.compile raises where NVRTC is missing, or cannot compile for a GPU."""
    found = find_nvrtc()
    for arch in architectures:
        _require_arch(found, arch)


def _require_arch(found: Nvrtc, arch: str) -> None:
    nvrtc = nvrtc_binding()
    supported = [f"sm_{number}" for number in _value(nvrtc.nvrtcGetSupportedArchs())]
    real = arch.replace("compute_", "sm_")
    if re.sub(rf"[{FEATURES}]$", "", real) not in supported:  # sm_90a and sm_100f are variants of the ones listed
        raise UnsupportedArchError(arch, str(found), supported)


def _cubins(arch: str) -> Iterable[str]:
    """The architectures whose cubins a GPU runs, nearest first: its own, also with the features that no other has, and
    the earlier ones of its generation."""
    found = _ARCHITECTURE.fullmatch(arch)
    if found is None:
        return [arch]
    return [arch, *_exact(arch), *(f"sm_{found[1]}{minor}" for minor in reversed(range(int(found[2]))))]


def _virtual(arch: str) -> Iterable[str]:
    """The architectures whose PTX a GPU's driver compiles, nearest first."""
    found = _ARCHITECTURE.fullmatch(arch)
    if found is None:
        return []
    number = int(found[1] + found[2])
    return [*_exact(f"compute_{number}"), *(f"compute_{each}" for each in range(number, _OLDEST - 1, -1))]


def _exact(arch: str) -> list[str]:
    """The architecture with its own features (sm_90a) and its family's (sm_100f). Such code is used only on GPUs of
    exactly this architecture."""
    return [f"{arch}{letter}" for letter in FEATURES]


def _value(answer: tuple[Any, ...]) -> Any:
    """The result of the binding, which returns the status first."""
    status, *values = answer
    if status.value != 0:
        raise CompilerBrokenError("NVRTC", ["nvrtc"], f"failed with {status.name}")
    return values[0] if values else None


def _pre_included(options: Sequence[str]) -> list[str]:
    found = [re.match(r"^(?:--?include|--pre-include)=(.*)$", option) for option in options]
    return [each[1] for each in found if each is not None]
