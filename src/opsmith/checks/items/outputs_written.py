"""Outputs are written completely, and nothing else is written or read: nothing past them or around the inputs."""

from __future__ import annotations

from collections.abc import Callable

from ...operator.op import Op
from .. import layouts, memory
from ..cases.case import Case
from ..memory import Outputs
from ..subject import Subject
from ._cases import draws_random_numbers, has_gradients, various_cases

ON = ("cpu", "cuda", "emulated")
ZEROS, NANS = memory.BYTES


def check(subject: Subject) -> str:
    cases = various_cases(subject)
    sure = [_check_outputs(subject, case) for case in cases]
    for case in cases if subject.full else cases[:3]:
        _check_given_outputs(subject, case)
    return f"{len(cases)} calls" + ("" if all(sure) else ", in memory of which some was filled before")


def check_call(subject: Subject, case: Case) -> None:
    _check_outputs(subject, case)
    _check_given_outputs(subject, case)


def _check_outputs(subject: Subject, case: Case) -> bool:
    """Whether all memory under the outputs was sure to be filled."""
    gradients = has_gradients(subject, case)
    try:
        sure = memory.assert_written(_call(subject, case, gradients))
    except AssertionError as error:
        raise case.failed(str(error)) from None
    first, _ = _between_bands(subject, case, gradients, ZEROS)
    second, again = _between_bands(subject, case, gradients, NANS)
    if not memory.same_bits(first, second) and memory.same_bits(second, again()):
        raise case.failed("its outputs change with what lies beside its inputs")
    return sure


def _between_bands(subject: Subject, case: Case, gradients: bool, byte: int) -> tuple[Outputs, Callable[[], Outputs]]:
    """The outputs for inputs in memory full of `byte`, which must stay so, and the function that returned them."""
    laid = case.each_tensor(lambda tensor: memory.banded(tensor, byte), "{}")
    function = _call(subject, laid, gradients)
    found = function()
    if subject.inplace:  # the calls before were given copies
        subject.raw(laid.values)
    for name, _, tensor in laid.named_tensors():
        if not memory.bands_intact(tensor, byte):
            raise case.failed(f"it writes into the memory beside {name}")
    return found, function


def _check_given_outputs(subject: Subject, case: Case) -> None:
    """For `op(..., out=)`."""
    if (
        not isinstance(subject.op, Op)
        or subject.op._families.default.out is None
        or draws_random_numbers(subject, case)
    ):
        return
    results = subject.call(case.values)
    positional, keyword = subject.signature.arranged(case.values)
    for layout in ("offset", "sliced"):
        given = [memory.banded(layouts.LAYOUTS[layout](result), NANS) for result in results]
        subject.op(*positional, **keyword, out=given if len(given) > 1 else given[0])
        if not memory.same_bits(results, given):
            raise case.failed(f"out= gets other numbers than it returns, which is {layout}")
        if not all(memory.bands_intact(each, NANS) for each in given):
            raise case.failed(f"it writes beside a tensor given as out=, which is {layout}")


def _call(subject: Subject, case: Case, gradients: bool) -> Callable[[], Outputs]:
    def called() -> Outputs:
        return [tensor for _, tensor in subject.evaluate(case, gradients)]

    return called
