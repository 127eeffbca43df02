"""Compile CUDA C++ text to a cubin with NVRTC, in this process and without a GPU, each build cached."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import CompileError, CompilerBrokenError, UnsupportedArchError
from .cache import Artifact, cache_key, obtain
from .compile import CXX_STANDARD
from .diagnostics import Diagnostic, parse
from .find import Nvrtc, find_nvrtc, nvrtc_binding, torch_cuda_version
from .headers import included_files
from .settings import line_info

_CUBIN = "kernel.cubin"
_FACTS = "module.json"
_PRELUDE = "<opsmith>"
# What NVRTC calls the text that it makes of the names it is asked for, a line each.
_NAME_MAP = "__nv_name_map"
_NAME = re.compile(r"^\s*#pragma nv_mangled_name (.*)$")
_ERROR = re.compile(r"^(?P<where>.*?): (?:catastrophic )?error(?: #[\w-]+)?: (?P<words>.*)$")


@dataclass(frozen=True)
class CudaModule:
    """A cubin, with what the compiler told of it."""

    path: Path
    names: Mapping[str, str]  # symbols by the expressions that were asked for
    refused: Mapping[str, str]  # what could not be had, and the compiler's words
    log: str


def compile_cubin(
    source: str,
    *,
    arch: str,
    options: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    name: str,
    label: str | None = None,
) -> Path:
    """A cubin of ``source`` for ``arch`` ("sm_90").

    ``options`` are NVRTC's own, as on its command line. ``name`` is what errors call the source: give the path of the
    author's file if there is one, and headers beside it are found. Raises CompileError, UnsupportedArchError,
    NvrtcNotFoundError, CudaHeadersNotFoundError, CudaVersionMismatchError.
    """

    def compile(command: Sequence[str]) -> dict[str, bytes]:
        return {_CUBIN: _compile(source, name, command).cubin}

    return _build(
        "nvrtc-cubin", source, arch, [*options, *line_info()], include_dirs, name, label, compile, [_CUBIN]
    ).path(_CUBIN)


def compile_module(
    source: str,
    *,
    arch: str,
    options: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    name: str,
    label: str | None = None,
    expressions: Mapping[str, Sequence[str]],
    prelude: str = "",
    line: tuple[int, str] | None = None,
    shown: str | None = None,
) -> CudaModule:
    """A cubin of ``source``, with the symbols of what is in it and the assembler's words on registers and memory.

    ``expressions`` are C++ expressions whose symbols are wanted (`scale<float, 4>`, `&table`), in groups under a name.
    A group whose expressions the compiler does not take is left out and told in ``refused``. ``prelude`` is text that
    goes before the source and moves none of its lines. ``line`` is the line and the file that the source's first line
    stands at, ``shown`` what errors call the source instead of ``name``; the build's key knows neither.
    """
    options = [*options, *line_info()]
    asked = [part for group, parts in expressions.items() for part in (group, *parts, "")]
    located = f'#line {line[0]} "{_quoted(line[1])}"\n' if line else ""
    debug = [located] if any(re.match(r"-(G|-device-debug|-?lineinfo|-generate-line-info)", o) for o in options) else []

    def compile(command: Sequence[str]) -> dict[str, bytes]:
        wanted, refused = dict(expressions), {}
        headers = {_PRELUDE: prelude} if prelude else {}
        while True:
            parts = [part for group in wanted.values() for part in group]
            try:
                program = _compile(located + source, name, command, headers, parts)
                break
            except _Rejected as rejected:
                faults = _refused_names(rejected.log, wanted)
                if not faults:
                    raise
                refused.update(faults)
                wanted = {group: parts for group, parts in wanted.items() if group not in faults}
        facts = {"names": program.names, "refused": refused, "log": program.log}
        return {_CUBIN: program.cubin, _FACTS: json.dumps(facts, indent=1).encode()}

    built = _build(
        "nvrtc-module",
        source,
        arch,
        ["--ptxas-options=-v", *([f"--pre-include={_PRELUDE}"] if prelude else []), *options],
        include_dirs,
        name,
        label,
        compile,
        [_CUBIN, _FACTS],
        key_also=[prelude, *asked, *debug],
        shown=shown,
    )
    facts = json.loads(built.path(_FACTS).read_bytes())
    return CudaModule(built.path(_CUBIN), facts["names"], facts["refused"], facts["log"])


def _build(
    kind: str,
    source: str,
    arch: str,
    options: Sequence[str],
    include_dirs: Sequence[Path],
    name: str,
    label: str | None,
    compile: Callable[[Sequence[str]], Mapping[str, bytes]],
    filenames: Sequence[str],
    key_also: Sequence[str] = (),
    shown: str | None = None,
) -> Artifact:
    label = label or os.path.basename(name)
    # A driver of an earlier CUDA major version may refuse the cubin: the major version is its ABI. torch's is asked
    # first, so that a cached cubin is found without NVRTC and without the time it takes to import.
    torch_cuda = torch_cuda_version()
    cuda_major = torch_cuda.split(".")[0] if torch_cuda else find_nvrtc().major
    # NVRTC looks for quoted headers beside the program it is told of, so the key must look there too.
    own = [Path(os.path.abspath(name)).parent, *(Path(directory).absolute() for directory in include_dirs)]
    common = (f"--gpu-architecture={arch}", *(() if _names_standard(options) else (f"--std={CXX_STANDARD}",)), *options)
    # Headers that an option includes are part of the source.
    whole = "".join(f'#include "{header}"\n' for header in _pre_included(options)) + source
    headers = included_files(whole, own[0], own[1:])
    key = cache_key(
        kind=kind,
        sources={"source": source, **headers},
        flags=[*common, "--", *key_also] if key_also else common,
        arch=arch,
        abi=f"cuda{cuda_major}",
    )

    def build(workdir: Path) -> dict[str, object]:
        found = find_nvrtc()
        command = [*common, *(f"--include-path={directory}" for directory in (*own[1:], *found.include_dirs))]
        _require_arch(found, arch)
        try:
            files = compile(command)
        except _Rejected as rejected:
            errors = [_as_shown(error, name, shown) for error in parse(rejected.log, own, workdir)]
            log = rejected.log.replace(name, shown) if shown else rejected.log
            own_errors = [error for error in errors if error.file != _NAME_MAP]
            raise CompileError(label, found, ["nvrtc", *command], own_errors or errors, log) from None
        if included_files(whole, own[0], own[1:]) != headers:
            raise _Edited  # a header was saved while NVRTC read it: what it made is not what the key says
        for filename, contents in files.items():
            (workdir / filename).write_bytes(contents)
        return {"compiler": f"{found} ({found.path})", "command": command}

    try:
        return obtain(key, build, label=label, filenames=filenames)
    except _Edited:
        return _build(kind, source, arch, options, include_dirs, name, label, compile, filenames, key_also, shown)


class _Edited(Exception):
    pass


class _Rejected(Exception):
    def __init__(self, log: str) -> None:
        self.log = log


@dataclass(frozen=True)
class _Program:
    cubin: bytes
    names: dict[str, str]
    log: str


def _compile(
    source: str,
    name: str,
    command: Sequence[str],
    headers: Mapping[str, str] | None = None,
    expressions: Sequence[str] = (),
) -> _Program:
    nvrtc = nvrtc_binding()
    texts = [text.encode() for text in (headers or {}).values()]
    names = [spelling.encode() for spelling in headers or {}]
    program = _value(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), len(texts), texts, names))
    try:
        for expression in expressions:
            _value(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(command), [option.encode() for option in command])
        log = bytes(_value(nvrtc.nvrtcGetProgramLogSize(program)))
        _value(nvrtc.nvrtcGetProgramLog(program, log))
        words = log.rstrip(b"\0").decode(errors="replace").strip()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _Rejected(words or status.name)
        cubin = bytes(_value(nvrtc.nvrtcGetCUBINSize(program)))
        _value(nvrtc.nvrtcGetCUBIN(program, cubin))  # fills the bytes in place, as its documentation has it
        symbols = {each: _value(nvrtc.nvrtcGetLoweredName(program, each.encode())).decode() for each in expressions}
        return _Program(cubin, symbols, words)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _refused_names(log: str, wanted: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The groups of names that the compiler does not take, with its first words on each; none where the source itself
    is at fault."""
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
        found.setdefault(group, error["words"])
    return found


def _as_shown(error: Diagnostic, name: str, shown: str | None) -> Diagnostic:
    return replace(error, file=shown) if shown and error.file == name else error


def _quoted(path: str) -> str:
    return path.replace("\\", "\\\\").replace('"', '\\"')


def _require_arch(found: Nvrtc, arch: str) -> None:
    nvrtc = nvrtc_binding()
    supported = [f"sm_{number}" for number in _value(nvrtc.nvrtcGetSupportedArchs())]
    if re.sub(r"[af]$", "", arch) not in supported:  # sm_90a and sm_100f are variants of the ones listed
        raise UnsupportedArchError(arch, str(found), supported)


def _value(answer: tuple[Any, ...]) -> Any:
    """The binding returns the status first, then what was asked for."""
    status, *values = answer
    if status.value != 0:
        raise CompilerBrokenError("NVRTC", ["nvrtc"], f"failed with {status.name}")
    return values[0] if values else None


def _names_standard(options: Sequence[str]) -> bool:
    return any(re.match(r"--?std\b", option) for option in options)


def _pre_included(options: Sequence[str]) -> list[str]:
    found = [re.match(r"^(?:--?include|--pre-include)=(.*)$", option) for option in options]
    return [each[1] for each in found if each is not None]
