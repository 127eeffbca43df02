"""Finds the directories of headers on this machine, for the author's editor, without importing anything."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_USUAL_TOOLKIT = Path("/usr/local/cuda")


def directories() -> dict[str, str]:
    """The directory for each placeholder in the template of .clangd."""
    torch = importlib.util.find_spec("torch")
    torch_package = Path(torch.origin).parent if torch is not None and torch.origin else Path("torch")
    with_headers = (each for each in _toolkits() if (each / "include" / "cuda_runtime.h").is_file())
    return {
        "OPSMITH_HEADERS": str(Path(__file__).parents[1] / "include"),
        "TORCH_HEADERS": str(torch_package / "include"),
        "CUDA_TOOLKIT": str(next(with_headers, _USUAL_TOOLKIT)),
    }


def _toolkits() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    if nvcc := shutil.which(os.environ.get("NVCC") or "nvcc"):
        yield Path(nvcc).resolve().parents[1]
    yield _USUAL_TOOLKIT
