"""Checks the names of packages and ops."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path

from ..errors import ScaffoldNameError

TORCH_NAMESPACES = frozenset(
    {"aten", "c10", "c10d", "cuda", "debug_mode_ops", "debugprims", "export", "fsdp", "higher_order", "inductor"}
    | {"inductor_prims", "load_library", "loaded_libraries", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "onnx"}
    | {"prepacked", "prim", "prims", "profiler", "quantization", "quantized", "rngprims", "sparse", "static_runtime"}
    | {"symm_mem", "torchaudio", "torchvision", "xnnpack"}
)
"""Attributes of torch.ops: a package's ops are torch.ops.PACKAGE.*."""
PROJECT_DIRECTORIES = frozenset({"src", "tests", "benchmarks", "examples", "docs", "build", "dist", "ops"})
_LONGEST = 64


def check_name(name: str, what: str) -> None:
    """Raises ScaffoldNameError unless it is a plain name: of a package, or of an op (`what`)."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ScaffoldNameError(
            name,
            f"{what}'s name consists of lower-case letters, digits and underscores, and starts with a letter",
            _repaired(name),
        )
    if keyword.iskeyword(name):
        raise ScaffoldNameError(name, "it is a keyword of Python", f"{name}_op" if what == "an op" else f"{name}_ops")
    if name.endswith("_"):
        raise ScaffoldNameError(
            name,
            "a trailing underscore marks an in-place operator, which the files define as well",
            name.rstrip("_"),
        )
    if len(name) > _LONGEST:
        raise ScaffoldNameError(name, f"it has more than {_LONGEST} characters")


def check_package(name: str, target: Path) -> None:
    """Raises ScaffoldNameError if the package that `target` will contain could not be imported by this name. The name
    that it suggests is accepted."""
    try:
        check_name(name, "a package")
    except ScaffoldNameError as error:
        if error.instead:
            try:
                check_package(error.instead, target)
            except ScaffoldNameError as again:
                raise ScaffoldNameError(name, error.reason, again.instead) from None
        raise
    if name in sys.stdlib_module_names:
        raise ScaffoldNameError(name, "it is a module of Python's standard library", f"{name}_ops")
    if name in PROJECT_DIRECTORIES:
        raise ScaffoldNameError(name, "the project has a directory of this name", f"my_{name}")
    if name in TORCH_NAMESPACES:
        raise ScaffoldNameError(name, f"torch has operators of its own in torch.ops.{name}", f"my_{name}")
    if (place := _installed(name)) is not None and not place.resolve().is_relative_to(target.resolve()):
        raise ScaffoldNameError(name, f"a module of this name is installed here, {place}", f"{name}_ops")


def check_op(name: str, used: frozenset[str]) -> None:
    """Raises ScaffoldNameError if it cannot name an op in whose code the names `used` occur."""
    check_name(name, "an op")
    if re.match(r"test(_|$)", name):
        raise ScaffoldNameError(name, "pytest would take the op for a test", f"{name}_op")
    if name in used:
        raise ScaffoldNameError(name, "the code of the op uses this name for something else", f"{name}_op")


def _installed(name: str) -> Path | None:
    """Where `import NAME` would find a module, other than in the current directory."""
    here = {"", str(Path.cwd())}
    before, sys.path[:] = list(sys.path), [entry for entry in sys.path if entry not in here]
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    finally:
        sys.path[:] = before
    if spec is None:
        return None
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or [])
    return Path(places[0]) if places else None


def _repaired(name: str) -> str | None:
    near = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_").lstrip("0123456789_")
    return near or None
