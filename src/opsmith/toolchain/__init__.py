"""Find compilers, compile, cache and load.

Every function here that builds goes through one cache (``obtain``) and raises ToolchainErrors. Importing this package
starts no process and imports neither torch nor CUDA.
"""

from __future__ import annotations

from .cache import Artifact, Usage, cache_directory, cache_key, clear, obtain, usage
from .compile import compile_shared_library, compile_with_nvcc, find_shared_library
from .elf import defined_symbols
from .find import Compiler, Nvrtc, find_cxx, find_nvcc, find_nvrtc, forget, python_headers
from .headers import included_files
from .load import load_library
from .nvrtc import CudaProgram
from .objects import Recipe, build_library, editor_commands
from .progress_line import progress
from .settings import gpu_targets, switch

__all__ = [
    "Artifact",
    "Compiler",
    "CudaProgram",
    "Nvrtc",
    "Recipe",
    "Usage",
    "build_library",
    "cache_directory",
    "cache_key",
    "clear",
    "compile_shared_library",
    "compile_with_nvcc",
    "defined_symbols",
    "editor_commands",
    "find_cxx",
    "find_nvcc",
    "find_nvrtc",
    "find_shared_library",
    "forget",
    "gpu_targets",
    "included_files",
    "load_library",
    "obtain",
    "progress",
    "python_headers",
    "switch",
    "usage",
]
