"""What the prebuilt files of a package say about themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import __version__
from .cache import packages_of, prebuilt_of
from .find import torch_cuda_version

MANIFEST = "manifest.json"
"""What was built, for which op and place, with which opsmith, and for which major version of CUDA."""


def of_package(module: str, file: str = MANIFEST) -> Mapping[str, Any]:
    """The contents of a JSON file among the prebuilt files of a module's package, of the innermost package that has it;
    empty if none has."""
    for place in (place for name in reversed(packages_of(module)) for place in prebuilt_of(name)):
        try:
            found = json.loads((place / file).read_text())
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            return found
    return {}


class Elsewhere(NamedTuple):
    """What a package's prebuilt files were built with, where that is not what runs here: the arguments of
    ReferenceRunsWarning with these names."""

    cuda: tuple[str, str] | None
    opsmith: tuple[str, str, str] | None


def built_elsewhere(module: str) -> Elsewhere:
    return Elsewhere(other_cuda(module), other_version(module))


def other_version(module: str) -> tuple[str, str, str] | None:
    """(package, the opsmith that its prebuilt files were built with, the opsmith that is running), if they differ."""
    built = of_package(module)
    if built.get("opsmith", __version__) == __version__:
        return None
    return str(built.get("package", module)), str(built["opsmith"]), __version__


def other_cuda(module: str) -> tuple[str, str] | None:
    """("13", "12"): the major version of CUDA that a package's GPU kernels are built for, and that of torch, by which
    they are looked up. None if the two agree, or the package has no such kernels."""
    built_for, own = of_package(module).get("cuda"), (torch_cuda_version() or "").split(".")[0]
    return (str(built_for), own) if built_for and own and str(built_for) != own else None
