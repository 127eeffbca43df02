"""The package to build: found by its name or as that of the current project, imported, and its ops."""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from .._lazy import import_by_name
from ..errors import PackageNotFoundError
from ..operator import child_process
from ..operator.op import Op
from ..operator.registry import registry
from ..toolchain.settings import ALL as EVERY_GENERATION
from ..toolchain.settings import TARGETS, gpu_targets, switch
from . import gpus

_TESTS = ("tests", "conftest")


def targets_for(arch: str | None, no_cuda: bool) -> tuple[str, ...]:
    """The GPU architectures to build for: none without CUDA; every generation, unless some are named."""
    if no_cuda or switch("USE_CUDA") is False:
        return ()
    named = arch or os.environ.get(TARGETS, "").strip()
    return gpus.ALL if not named or named.lower() in EVERY_GENERATION else gpu_targets(arch or None)


def imported(name: str | None) -> ModuleType:
    """The package of that name, or of the project in the current directory."""
    here = Path.cwd()
    name = name or _name_here(here)
    for place in (here / "src", here):
        if str(place) not in sys.path and (place / name.partition(".")[0]).is_dir():
            sys.path.insert(0, str(place))
    if not all(part.isidentifier() for part in name.split(".")):
        raise PackageNotFoundError(name, "that is not a valid package name")
    try:
        with child_process.importing():
            module = import_by_name(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise PackageNotFoundError(name, f"Python finds no module {error.name!r} here") from None
        raise
    if not hasattr(module, "__path__"):
        around = name.rpartition(".")[0]
        what = f"{module.__file__} is a file; only a package (a directory) can hold files"
        raise PackageNotFoundError(name, f"{what}. Build {around}" if around else what)
    return module


def ops_of(package: ModuleType, note: Callable[[str], None] = lambda text: None) -> Sequence[Op]:
    """The ops that a package and its modules declare. A module that cannot be imported, because an optional dependency
    is not installed, is left out, and `note` is called with a message."""
    if package.__name__ == "opsmith":
        from .. import ops

        return [getattr(ops, name) for name in ops.names() if not name.startswith("_")]
    prefix = f"{package.__name__}."
    _import_all(package, prefix, note)
    return [op for op in registry.values() if f"{op.__module__}.".startswith(prefix)]


def _import_all(package: ModuleType, prefix: str, note: Callable[[str], None]) -> None:
    """Imports the modules of a package and of its subpackages, tests excepted."""
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        name = found.name.rpartition(".")[2]
        if name.startswith("__") or name in _TESTS:
            continue
        try:
            module = import_by_name(found.name)
        except ImportError as error:
            if f"{error.name}.".startswith(prefix):
                raise
            note(f"the ops of {found.name} are left out, because it cannot be imported: {error}")
        except (Exception, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # what pytest.skip raises is no Exception
            note(f"the ops of {found.name} are left out, because it cannot be imported: {error}")
        else:
            if found.ispkg:
                _import_all(module, prefix, note)


def _name_here(here: Path) -> str:
    for place in (here / "src", here):
        found = sorted(each.parent.name for each in place.glob("*/__init__.py") if each.parent.name.isidentifier())
        found = [each for each in found if each not in ("tests", "docs", "examples", "benchmarks")]
        if len(found) == 1:
            return found[0]
        if found:
            raise PackageNotFoundError(None, f"there are several packages here: {', '.join(found)}. Name one")
    raise PackageNotFoundError(None, f"there is no package in {here}. Name one, or change to your project's directory")
