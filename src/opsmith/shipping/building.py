"""Building a package's kernels ahead of time: recorded, compiled in parallel, put into the package as a whole.

    PACKAGE/prebuilt/artifacts/<key>/   the files of a build, as in the cache, with a provenance that names no machine
    PACKAGE/prebuilt/manifest.json      what was built, for which op and place, with keys, sizes and versions

Compilers write into a cache of their own, so an interrupted build can be continued. The package's directory is
replaced by one rename when everything is there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from .. import __version__
from ..errors import CudaToolsError, ToolMissingError
from ..kernels import extension as extensions
from ..operator.op import Op
from ..toolchain import Recipe, build_library, cache_directory, find_cxx, find_nvrtc, manylinux, nvrtc, objects
from ..toolchain.cache import PREBUILT, prebuilt_directories
from ..toolchain.compile import cuda_major
from ..toolchain.portable import for_level, levels_of, library_key, library_name
from ..toolchain.process import run_together
from ..toolchain.settings import max_jobs
from ..toolchain.shipped import MANIFEST
from ..toolchain.store import PROVENANCE
from . import own, torch_headers
from .passport import FILE as PASSPORT
from .recording import Recording, record_op
from .staging import staged


@dataclass(frozen=True)
class Row:
    """One build, as the manifest lists it. `op`: whose kernel it is, or the extension's name."""

    op: str
    place: str
    label: str
    key: str
    bytes: int


@dataclass(frozen=True)
class Plan:
    """What to build for a package. `libraries`: extensions, each with the processor level it is built for."""

    package: str
    directory: Path
    targets: tuple[str, ...]
    recordings: Sequence[Recording]
    libraries: Sequence[tuple[Recipe, str | None]]

    @functools.cached_property
    def builds(self) -> dict[object, Callable[[], Path]]:
        """Every kernel once: ops may share some."""
        return {each.identity: each.build for recording in self.recordings for each in recording.wanted}

    @property
    def count(self) -> int:
        return len(self.builds) + len(self.libraries)


def plan(package: ModuleType, ops: Sequence[Op], targets: Sequence[str]) -> Plan:
    """Records the kernels of a package's ops. `targets`: the GPUs' architectures; without any, no CUDA is built."""
    name = package.__name__
    recordings = [record_op(op, targets) for op in ops]
    if name == own.NAME:
        recordings.append(own.record(torch_headers.releases()))
    recipes = [
        each.recipe(targets)
        for each in extensions.registry.values()
        if f"{each.module}.".startswith(f"{name}.") and each.is_stable and (targets or not each.is_cuda_alone)
    ]
    libraries = [(recipe, level) for recipe in recipes for level in levels_of(recipe)]
    return Plan(name, Path(next(iter(package.__path__))), tuple(targets), recordings, libraries)


def build(
    plan: Plan,
    advance: Callable[[], None] = lambda: None,
    into: Path | None = None,
    passport: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Compiles what is planned and puts it into the package, or into a directory, with a passport if there is one.
    `advance` is called after each kernel."""
    require_tools(plan)
    with compilers_cache(), staged(into or plan.directory / PREBUILT, MANIFEST) as staging:
        (staging / "artifacts").mkdir()
        built: dict[object, tuple[str, int]] = {}

        def kernel(identity: object, compile: Callable[[], Path]) -> None:
            artifact = compile().parent
            built[identity] = artifact.name, _copy(artifact, artifact.name, staging)
            advance()

        def library(recipe: Recipe, level: str | None) -> None:
            path = build_library(for_level(recipe, level))
            cuda = int(cuda_major()) if recipe.targets else None
            key = library_key(recipe, level)
            facts = {"targets": list(recipe.targets), "cuda": cuda}
            built[recipe.name, level] = key, _copy(path.parent, key, staging, facts, library_name(recipe))
            advance()

        tasks = [functools.partial(kernel, *each) for each in plan.builds.items()]
        run_together([*tasks, *(functools.partial(library, *each) for each in plan.libraries)], max_jobs())
        rows = [
            Row(recording.op, each.place, each.label, *built[each.identity])
            for recording in plan.recordings
            for each in recording.wanted
        ]
        rows += [
            Row(recipe.name, level or "any", recipe.label, *built[recipe.name, level])
            for recipe, level in plan.libraries
        ]
        rows.sort(key=lambda row: (row.op, row.place, row.label, row.key))
        facts = {
            "opsmith": __version__,
            "package": plan.package,
            "targets": plan.targets,
            "cuda": _cuda(plan),
            "kernels": list(map(asdict, rows)),
        }
        (staging / MANIFEST).write_text(json.dumps(facts, indent=1) + "\n")
        if passport is not None:
            (staging / PASSPORT).write_text(json.dumps(passport, indent=1) + "\n")
    return rows


def _cuda(plan: Plan) -> int | None:
    """The major version of CUDA that the GPU kernels of a plan are built for; None if it has none."""
    if any(wanted.place in plan.targets for recording in plan.recordings for wanted in recording.wanted):
        return find_nvrtc().major
    return int(cuda_major()) if any(recipe.targets for recipe, _ in plan.libraries) else None


def require_tools(plan: Plan) -> None:
    """Raises CudaToolsError if a compiler for the plan's GPUs is missing, before any kernel is compiled."""
    try:
        if any(wanted.place in plan.targets for recording in plan.recordings for wanted in recording.wanted):
            nvrtc.require_architectures(plan.targets)
        if any(recipe.targets for recipe, _ in plan.libraries):
            objects.require_architectures(plan.targets)
    except ToolMissingError as error:
        raise CudaToolsError(plan.targets, error) from error


@contextmanager
def compilers_cache() -> Iterator[None]:
    """Inside, builds are linked for other systems, and use a cache that is only for these versions of the compilers, so
    that equal inputs give equal bytes: keys of the user's cache do not include compiler versions."""
    tools = [str(find_cxx()), manylinux.identity()]
    with suppress(ToolMissingError):
        tools.append(find_nvrtc().version)
    name = f"packages-{hashlib.sha256(' '.join(tools).encode()).hexdigest()[:16]}"
    settings = {"OPSMITH_CACHE_DIR": str(cache_directory() / name), "OPSMITH_QUIET": "1"}
    shipped, prebuilt_directories[:] = list(prebuilt_directories), []
    try:
        with mock.patch.dict(os.environ, settings), manylinux.for_other_systems():
            yield
    finally:
        prebuilt_directories[:] = shipped


def _copy(
    artifact: Path, key: str, staging: Path, facts: Mapping[str, Any] | None = None, library: str | None = None
) -> int:
    """Puts a finished build into a package's directory, readable by all users, and without what differs between two
    builds of the same sources. Returns its size in bytes."""
    provenance = json.loads((artifact / PROVENANCE).read_text())
    place = staging / "artifacts" / key
    with suppress(FileExistsError):
        place.mkdir()
    kept = {
        "key": key,
        "label": provenance["label"],
        "compiler": _without_paths(provenance["compiler"]),
        **{name: provenance[name] for name in [nvrtc.FACTS] if name in provenance},
        **(facts or {}),
    }
    for name in provenance["files"]:
        shutil.copyfile(artifact / name, place / name)
        (place / name).chmod(0o644)
    (place / PROVENANCE).write_text(json.dumps({**kept, "files": provenance["files"]}, indent=1) + "\n")
    return sum(each["size"] for each in provenance["files"].values())


def _without_paths(compiler: str) -> str:
    """'c++ (gcc 12.2.0)' of '/usr/bin/c++ (gcc 12.2.0)'."""
    return re.sub(r"[^\s(]*/", "", compiler)
