"""Directories of headers on this machine, for the author's editor. Nothing is imported to find them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

PLACEHOLDERS = ("OPSMITH_HEADERS", "TORCH_HEADERS", "CUDA_HEADERS")
"""In the template of .clangd."""
_NOWHERE = Path("include")  # clangd passes over a directory that does not exist


def directories() -> dict[str, str]:
    """What stands for each placeholder."""
    torch = importlib.util.find_spec("torch")
    torch_root = Path(torch.origin).parent if torch is not None and torch.origin else Path()
    cuda = next((each for each in _cuda_candidates() if (each / "cuda_runtime.h").is_file()), _NOWHERE)
    found = (Path(__file__).parents[1] / "include", torch_root / "include", cuda)
    return dict(zip(PLACEHOLDERS, map(str, found), strict=True))


def _cuda_candidates() -> Iterator[Path]:
    """A toolkit's, and those that NVIDIA's packages install."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "include"
    if nvcc := shutil.which(os.environ.get("NVCC") or "nvcc"):
        yield Path(nvcc).resolve().parents[1] / "include"
    yield Path("/usr/local/cuda/include")
    for entry in sys.path:
        yield from sorted((Path(entry) / "nvidia").glob("*/include"), reverse=True)
