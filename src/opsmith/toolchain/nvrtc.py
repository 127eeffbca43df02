"""Compile CUDA C++ text to a cubin with NVRTC, in this process and without a GPU, each build cached."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import CompileError, CompilerBrokenError, UnsupportedArchError
from .cache import cache_key, obtain
from .compile import CXX_STANDARD
from .diagnostics import parse
from .find import Nvrtc, find_nvrtc, nvrtc_binding, torch_cuda_version
from .headers import included_files


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
    label = label or os.path.basename(name)
    # A driver of an earlier CUDA major version may refuse the cubin: the major version is its ABI. torch's is asked
    # first, so that a cached cubin is found without NVRTC and without the time it takes to import.
    torch_cuda = torch_cuda_version()
    cuda_major = torch_cuda.split(".")[0] if torch_cuda else find_nvrtc().major
    # NVRTC looks for quoted headers beside the program it is told of, so the key must look there too.
    own = [Path(os.path.abspath(name)).parent, *(Path(directory).absolute() for directory in include_dirs)]
    common = (f"--gpu-architecture={arch}", *(() if _names_standard(options) else (f"--std={CXX_STANDARD}",)), *options)
    key = cache_key(
        kind="nvrtc-cubin",
        sources={"source": source, **included_files(source, own[0], own[1:])},
        flags=common,
        arch=arch,
        abi=f"cuda{cuda_major}",
    )

    cubin = "kernel.cubin"

    def build(workdir: Path) -> dict[str, object]:
        found = find_nvrtc()
        command = [*common, *(f"--include-path={directory}" for directory in (*own[1:], *found.include_dirs))]
        _require_arch(found, arch)
        try:
            (workdir / cubin).write_bytes(_compile(source, name, command))
        except _Rejected as rejected:
            log = rejected.log
            raise CompileError(label, found, ["nvrtc", *command], parse(log, own, workdir), log) from None
        return {"compiler": f"{found} ({found.path})", "command": command}

    return obtain(key, build, label=label, filenames=[cubin]).path(cubin)


class _Rejected(Exception):
    def __init__(self, log: str) -> None:
        self.log = log


def _compile(source: str, name: str, command: Sequence[str]) -> bytes:
    nvrtc = nvrtc_binding()
    program = _value(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(command), [option.encode() for option in command])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytes(_value(nvrtc.nvrtcGetProgramLogSize(program)))
            _value(nvrtc.nvrtcGetProgramLog(program, log))
            raise _Rejected(log.rstrip(b"\0").decode(errors="replace").strip() or status.name)
        cubin = bytes(_value(nvrtc.nvrtcGetCUBINSize(program)))
        _value(nvrtc.nvrtcGetCUBIN(program, cubin))  # fills the bytes in place, as its documentation has it
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


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
