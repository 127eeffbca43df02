"""What a call goes through between the dispatcher and an operator's kernels, in C++ or in Python.

A process uses one tier: C++ if the library for the installed torch has been built or is prebuilt in opsmith's wheel,
else the Python fallback, and then the library is built in the background for the next process. OPSMITH_RUNTIME=python
or =native chooses a tier.
Both give the same results; the tests run on both.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import OpsmithError, RuntimeTierError, TorchNotPrebuiltWarning
from ..errors.base import warn
from ..toolchain import find_cxx
from ..toolchain.cache import OWN_PREBUILT
from . import fallback, native

if TYPE_CHECKING:
    from .operator import Operator

VARIABLE = "OPSMITH_RUNTIME"
_forced: str | None = None


Attachment = fallback.Attachment | native.Attachment
"""One operator's registrations on the keys of a tier: Autograd, ADInplaceOrView, autocast, and the devices'. `call` is
the operator on positional arguments, by the tier's fastest path; `update` follows the replacement of a part."""


def attach(operator: Operator) -> Attachment:
    library = _library() if tier() == "native" else None
    return fallback.Attachment(operator) if library is None else native.Attachment(operator, library)


def tier() -> str:
    """'native' or 'python': the tier of operators declared now."""
    if _forced is not None:
        return _forced
    return "python" if _library() is None else "native"


@functools.cache
def reason() -> str:
    """Why this process uses its tier."""
    asked = _asked()
    if asked is not None:
        return f"{VARIABLE}={asked}"
    if (library := _library()) is not None:
        own = library.path.is_relative_to(OWN_PREBUILT)
        return f"prebuilt for torch {native.torch_release()}" if own else "built for this torch"
    try:
        find_cxx()
    except OpsmithError as error:
        return str(error).splitlines()[0]
    if message := native.recent_failure():
        return f"its build failed: {message}"
    return "it was not built when this process started, and is built in the background for the next one"


@functools.cache
def _library() -> native.Library | None:
    """The C++ tier's library, decided once: a process never changes tier."""
    asked = _asked()
    if asked == "python":
        return None
    if asked == "native":
        return native.Library(native.find() or native.build())
    with contextlib.suppress(OpsmithError):
        path = native.find()
        if path is not None:
            return native.Library(path)
    can_build = _build_in_background()
    if (prebuilt := native.releases_prebuilt()) and native.torch_release() not in prebuilt:
        warn(TorchNotPrebuiltWarning(native.torch_release(), prebuilt, can_build))
    return None


def _asked() -> str | None:
    value = os.environ.get(VARIABLE, "").strip().lower()
    if value in ("", "auto"):
        return None
    if value not in ("python", "native"):
        raise RuntimeTierError(VARIABLE, value)
    return value


def _build_in_background() -> bool:
    """Starts the build in a separate process that outlives this one; False where it cannot be built here. It takes the
    cache's lock, so many processes that start at once build once. A build that failed today is not tried again."""
    with contextlib.suppress(OSError, OpsmithError):
        find_cxx()
        if native.recent_failure():
            return False
        subprocess.Popen(
            [sys.executable, "-m", "opsmith.runtime.build", "--background"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, VARIABLE: "python"},
        )
        return True
    return False


@contextlib.contextmanager
def forced(tier_name: str) -> Iterator[None]:
    """Operators declared inside use the given tier: how the tests compare the two."""
    global _forced
    before, _forced = _forced, tier_name
    try:
        yield
    finally:
        _forced = before
