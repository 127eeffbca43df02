"""What stands between the dispatcher and an operator's kernels, in C++ where it can be had, else in Python.

One tier serves a whole process: C++ where the library for the installed torch is in the cache or the wheel, else the
Python twin, and then the library is built in the background for the next process. OPSMITH_RUNTIME=python or =native
settles it by hand. Both tiers give the same results; the tests run on both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from . import twin

if TYPE_CHECKING:
    from ..registration import Operator


class Attachment(Protocol):
    """One operator's registrations on the keys that a tier serves: Autograd, ADInplaceOrView, Autocast, and the devices."""

    tier: str

    def update(self) -> None:
        """Called when a part of the operator has been replaced."""

    def close(self) -> None: ...


_forced: str | None = None


def tier() -> str:
    """'native' or 'python': what operators declared now are attached by."""
    return _forced or "python"


def attach(operator: Operator) -> Attachment:
    return twin.Attachment(operator)


@contextlib.contextmanager
def forced(tier_name: str) -> Iterator[None]:
    """Operators declared inside are attached by the given tier: how the tests compare the two."""
    global _forced
    before, _forced = _forced, tier_name
    try:
        yield
    finally:
        _forced = before
