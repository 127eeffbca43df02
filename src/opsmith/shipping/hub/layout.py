"""The directory that `kernels` loads: one build variant, written as a whole.

DIR/build/torch-stable-abi211-cpu-x86_64-linux/__init__.py      the ops (initialiser.py)
                                               <package>.so     their kernels, on torch's stable ABI
                                               metadata.json    what kernels reads first
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ... import __version__
from ...errors import HubError
from ...operator.op import Op
from ...toolchain.cache import PREBUILT
from ..staging import staged
from .initialiser import NAMESPACE, initialiser

STABLE_ABI = "torch-stable-abi211"
"""Of torch 2.11, the oldest that opsmith supports: kernels offers it to that release and to later ones."""
LEAST_KERNELS = "0.17.0"
NO_LICENCE = "NOASSERTION"
_UNLICENSED = (
    f'The licence in metadata.json is {NO_LICENCE}, because none is known. Set `license = "..."` in pyproject.toml and '
    "install the project (pip install -e .)."
)
_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")

Build = Callable[[str], Path]
"""The shared library whose operators are in the given namespace."""


class Variant(NamedTuple):
    """What was written, and notes for the person who builds."""

    directory: Path
    namespace: str
    notes: Sequence[str]


def write_hub(
    directory: Path,
    package: ModuleType,
    ops: Sequence[Op],
    library: Build | None,
    passport: Mapping[str, Any] | None,
    *,
    served: Mapping[str, bool] | None = None,
    backend: str = "cpu",
    targets: Sequence[str] = (),
) -> Variant:
    """Writes one build variant of a package's ops into `directory`, which `kernels.get_local_kernel` then loads.

    Args:
        library: builds the shared library; None if the package has only references.
        passport: what shipping.passport.passport returned, for the flags of the layers.
        served: by operator ("mish_backward"), whether the library has a kernel for it.
        backend: 'cpu', or 'cu130' for CUDA 13.0 and later ones of that major version.
        targets: the GPU architectures in it, for metadata.json.

    Raises HubError and NotSelfContainedError. A variant of that name is replaced at the end, or left as it was.
    """
    name = _hub_name(package.__name__)
    module = name.replace("-", "_")
    file = f"{module}.so" if library is not None else None
    generated = initialiser(package, ops, file, served or {}, _proof(passport, backend))
    namespace = f"_{module}_{_digest(package, generated.text, backend, targets)}"
    licence = _licence(package.__name__.partition(".")[0])
    facts = {
        "name": name,
        "id": namespace,
        "version": 1,
        "license": licence,
        "kernels-minver": LEAST_KERNELS,
        "python-depends": generated.dependencies,
        "backend": _backend(backend, targets),
    }
    place = directory / "build" / f"{STABLE_ABI}-{backend}-{platform.machine()}-{platform.system().lower()}"
    built = library(namespace) if library is not None else None
    with staged(place, "metadata.json") as staging:
        (staging / "__init__.py").write_text(generated.text.replace(NAMESPACE, namespace))
        (staging / "metadata.json").write_text(json.dumps(facts, indent=2) + "\n")
        if built is not None and file is not None:
            shutil.copyfile(built, staging / file)
    notes = [_UNLICENSED] if licence == NO_LICENCE else []
    return Variant(place, namespace, [*notes, *generated.notes])


def _hub_name(package: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", package.lower()).strip("-")
    if not _NAME.fullmatch(name):
        what = f"a name on the Hub has the form 'my-kernel', and this one would be {name!r}. Rename the package"
        raise HubError(package, what)
    return name


def _proof(passport: Mapping[str, Any] | None, backend: str) -> dict[str, frozenset[str]]:
    """By op, the check items that passed on the backend's device. CUDA kernels may have been emulated."""
    found: dict[str, frozenset[str]] = {}
    for check in (passport or {}).get("checks", ()):
        on_cuda = check["device"] == "cuda" or check["emulated"]
        if on_cuda is (backend != "cpu"):
            found[check["op"]] = found.get(check["op"], frozenset()) | set(check.get("items", ()))
    return found


def _backend(backend: str, targets: Sequence[str]) -> dict[str, Any]:
    if backend == "cpu":
        return {"type": "cpu"}
    if not re.fullmatch(r"cu\d{3,}", backend):
        raise HubError(backend, "a backend is 'cpu', or CUDA with its version, as in 'cu130'")
    return {"type": "cuda", "archs": [_arch(each) for each in targets]}


def _arch(target: str) -> str:
    """'9.0a' of sm_90a, '12.0+PTX' of compute_120."""
    kind, _, number = target.partition("_")
    digits = number.rstrip("af")
    return f"{digits[:-1]}.{digits[-1]}{number[len(digits) :]}{'+PTX' if kind == 'compute' else ''}"


def _digest(package: ModuleType, text: str, backend: str, targets: Sequence[str]) -> str:
    """A digest of everything the kernels are made of, so that another version has another namespace."""
    found = hashlib.sha256("\0".join([__version__, text, backend, *targets]).encode())
    for path in _sources(package):
        found.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _sources(package: ModuleType) -> Iterator[Path]:
    root = Path(next(iter(package.__path__)))
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root).parts
        if path.is_file() and "__pycache__" not in inside and PREBUILT not in inside:
            yield path


def _licence(package: str) -> str:
    """The licence of the distribution that a package belongs to, as SPDX writes it."""
    for distribution in metadata.packages_distributions().get(package, [package]):
        with suppress(metadata.PackageNotFoundError):
            held = metadata.metadata(distribution).json
            if named := held.get("license_expression") or held.get("license"):
                return str(named).partition("\n")[0]
    return NO_LICENCE
