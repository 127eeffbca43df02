"""check_op: the checklist of an op as pytest tests, one per item."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from ..checks.report import Item
    from ..checks.subject import Subject
    from ..operator.adopted import Adopted
    from ..operator.op import Op

ARGUMENT = "opsmith_item"


def check_op(
    op: Op | Adopted | Callable[[], Op | Adopted],
    *,
    device: str | None = None,
    level: Literal["quick", "full"] = "quick",
    seed: int = 0,
    emulate: bool = False,
    items: Sequence[str] | None = None,
) -> Callable[..., None]:
    """One test per item of the checklist: `test_mish[values]`, `test_mish[gradients]`, and so on.

    >>> test_mish = opsmith.testing.check_op(mish)
    >>> test_mish_on_gpu_code = opsmith.testing.check_op(mish, emulate=True)

    Assign it at the top level of a test file or in the body of a test class. Apply marks to the result:
    `pytest.mark.slow(check_op(mish))`. Called inside a running test, it runs the items and fails with all failures.

    Args:
        op: an Op, or the result of `opsmith.checks.adopt` for an operator of torch.ops; or a function without
            parameters that returns one, which the first test calls, not the collection of tests.
        device, level, seed, emulate, items: as for `opsmith.check`.
    """
    checklist = _Checklist(op, {"device": device, "level": level, "seed": seed, "emulate": emulate})
    caller = inspect.currentframe()
    caller = caller.f_back if caller is not None else None
    if _in_a_running_test(caller):
        checklist.run_all(items)

    # On one line: below, its code gets the caller's file and line, where pytest then reports the test and its skip.
    # `_` is the instance if this is a method; pytest does not take a positional-only parameter for a fixture.
    def test(_: object = None, /, *, opsmith_item: str) -> None: checklist.run(opsmith_item)  # fmt: skip

    if caller is not None:
        code = test.__code__.replace(co_filename=caller.f_code.co_filename, co_firstlineno=caller.f_lineno)
        test.__code__ = code
    return pytest.mark.parametrize(ARGUMENT, checklist.names(items))(test)


def _in_a_running_test(caller: FrameType | None) -> bool:
    """Whether pytest is running a test, and the caller is a function instead of the body of a module or class."""
    in_function = caller is not None and bool(caller.f_code.co_flags & inspect.CO_OPTIMIZED)
    return in_function and "PYTEST_CURRENT_TEST" in os.environ


class _Checklist:
    """One op with its options."""

    def __init__(self, op: Any, options: dict[str, Any]) -> None:
        self._op = op
        self._options = options

    def names(self, items: Sequence[str] | None) -> list[str]:
        """The items to collect. Imports torch and the checklist, but neither calls nor declares an op."""
        from ..checks.run import items_at, place_of

        place = place_of(self._options["device"], self._options["emulate"])
        return [item.name for item in items_at(place, self._options["level"], items)]

    def run(self, name: str) -> None:
        __tracebackhide__ = True
        found = self._found(name)
        if found.status == "failed" or found.uncovered:
            pytest.fail(_failure(found), pytrace=False)
        if found.status == "skipped":
            pytest.skip(found.message)

    def run_all(self, items: Sequence[str] | None) -> None:
        __tracebackhide__ = True
        failed = [each for each in map(self._found, self.names(items)) if each.status == "failed" or each.uncovered]
        if failed:
            pytest.fail("\n\n".join(f"{each.name}: {_failure(each)}" for each in failed), pytrace=False)

    def _found(self, name: str) -> Item:
        __tracebackhide__ = True
        import torch

        from ..checks.run import NO_GPU, items_at, run_isolated

        if self._options["device"] == "cuda" and not torch.cuda.is_available():
            pytest.skip(NO_GPU)
        subject = self._subject()
        return run_isolated(subject, *items_at(subject.place, subject.level, [name]))

    @functools.lru_cache(maxsize=1)  # noqa: B019  # making samples takes time, and keeping those of all ops memory
    def _subject(self) -> Subject:
        __tracebackhide__ = True
        from ..checks.run import subject_of

        return subject_of(self._resolved(), **self._options)

    def _resolved(self) -> Op | Adopted:
        __tracebackhide__ = True
        import torch

        from ..errors import NotAnOpError
        from ..operator.adopted import Adopted
        from ..operator.op import Op

        if isinstance(self._op, (Op, Adopted)):
            return self._op
        if not callable(self._op) or isinstance(self._op, torch._ops.OpOverloadPacket | torch._ops.OpOverload):
            raise NotAnOpError(self._op)
        op = self._op()
        if not isinstance(op, (Op, Adopted)):
            raise NotAnOpError(op, self._op)
        return op


def _failure(item: Item) -> str:
    if item.uncovered:
        return f"could not be checked: {item.message}"
    return f"{item.message}\n\nTo reproduce:\n\n{item.reproduction}\n"
