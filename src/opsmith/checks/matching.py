"""assert_matches: one call of an op held against its reference, for tests and for the reproductions of a check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .adopted import Adopted
from .cases import Case
from .items._truth import compared
from .subject import Subject

if TYPE_CHECKING:
    from ..op import Op


def assert_matches(op: Op | Adopted, *args: Any, gradients: bool = True, **kwargs: Any) -> None:
    """Raises AssertionError unless the op's results for these arguments, and the gradients of its floating inputs, are
    the reference's within what rounding explains (opsmith.checks.budget)."""
    subject = Subject(op)
    values = op.signature.bind_call(args, kwargs)
    found = compared(subject, Case("this call", op.signature.arguments, tuple(values), ()), gradients)
    wrong = [f"{each.what}: {each.message}" for each in found if not each]
    assert not wrong, f"{op.name} is not its reference: " + "; ".join(wrong)
