"""Errors of those who ask for a check: of an option, of an op that is none, of an operator with several overloads."""

from __future__ import annotations

from collections.abc import Sequence

from .base import OpsmithError, listed


class CheckOptionError(OpsmithError, ValueError):
    """A check was asked for with a device, a level or an item that there is not."""


class NotAnOpError(OpsmithError, TypeError):
    """What was to be checked is neither an op nor an adopted operator."""

    def __init__(self, given: object, returned_by: object | None = None) -> None:
        source = "" if returned_by is None else f", which {returned_by!r} returned"
        super().__init__(
            f"a check takes an op, not {given!r}{source}. An operator of torch.ops is checked beside a reference: "
            "opsmith.checks.adopt(torch.ops.mylib.mish, reference)"
        )


class NotAnOperatorError(OpsmithError, TypeError):
    """`adopt` was given something else than an operator of torch.ops."""

    def __init__(self, given: object) -> None:
        super().__init__(f"adopt takes an operator, torch.ops.<namespace>.<name>, not {given!r}")


class SeveralOverloadsError(OpsmithError, ValueError):
    """`adopt` was given an operator that has overloads, and none of them is the default."""

    def __init__(self, operator: str, overloads: Sequence[str]) -> None:
        super().__init__(
            f"torch.ops.{operator} has overloads, of which one is checked: {listed(overloads)}. "
            f"Give torch.ops.{operator}.{overloads[0]}, or another"
        )
