"""On fake tensors the op gives the shapes, dtypes, strides and devices of real ones; symbolic sizes stay symbolic."""

from __future__ import annotations

from ...operator.op import Op
from .. import layouts
from ..accuracy.truth import Function
from ..cases.acceptance import taken
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from ._cases import READS_VALUES, generated_case, has_gradients, value_access
from ._fake import constants, described, on_fake

LIMIT = 1 << 12
"""Elements of a case: metadata does not depend on them, and a reference may loop over a dimension."""


def check(subject: Subject) -> str:
    if value_access(subject):
        raise Skipped(READS_VALUES)
    cases = [case for dtype in subject.dtypes for case in subject.some_cases(dtype, LIMIT)]
    cases += _with_other_layouts(subject)
    for case in cases:
        _check_metadata(subject, case)
    return f"{len(cases)} calls, with gradients; {_check_symbols(subject, generated_case(subject))}"


def check_call(subject: Subject, case: Case) -> None:
    _check_metadata(subject, case)
    _check_symbols(subject, case)


def _check_metadata(subject: Subject, case: Case) -> None:
    gradients = has_gradients(subject, case)
    wrong = _differences(subject, subject.raw, case, gradients)
    if not wrong:
        return
    # Some of torch's own shape rules are wrong: what is wrong for the reference too is not the op's fault.
    torchs = {what for what, _, _ in _differences(subject, subject.inline, case, gradients)}
    for what, mine, theirs in wrong:
        if what not in torchs and not _is_torchs_gradient(subject, what, mine, theirs):
            raise case.failed(f"{what} is {mine} on fake tensors, but {theirs} on real ones")


def _is_torchs_gradient(subject: Subject, what: str, fake: str, real: str) -> bool:
    """The gradient of an adopted operator may be computed by torch's operators, some of which report wrong strides;
    nothing relies on the strides of a gradient."""
    own = isinstance(subject.op, Op)
    return not own and what.startswith("gradient") and fake.partition(", strides")[0] == real.partition(", strides")[0]


def _differences(subject: Subject, function: Function, case: Case, gradients: bool) -> list[tuple[str, str, str]]:
    """(what, as it is on fake tensors, as on real ones) for each output that is not the same on both."""
    real = subject.evaluate(case, gradients, function)
    fake = on_fake(subject, function, case, gradients)
    if len(fake) != len(real):
        return [("what it returns", f"{len(fake)} tensors", f"{len(real)}")]
    pairs = zip(fake, real, strict=True)
    found = [(what, described(mine), described(theirs)) for (what, mine), (_, theirs) in pairs]
    return [each for each in found if each[1] != each[2]]


def _with_other_layouts(subject: Subject) -> list[Case]:
    case = generated_case(subject)
    names = {name for tensor in case.every_tensor() for name in layouts.layouts_for(tensor)}
    found = []
    for layout in sorted(names):
        change = layouts.LAYOUTS[layout]
        laid = case.named(f"{case.name}, {layout}")
        for argument, tensor in case.tensors():
            if layout in layouts.layouts_for(tensor) and not (argument.mutated and layout in layouts.CHANGING):
                laid = laid.changed(argument.name, change(tensor), layouts.code(layout).format(argument.name))
        if layout not in layouts.CHANGING or taken(subject, laid):
            found.append(laid)
    return found


def _check_symbols(subject: Subject, case: Case) -> str:
    gradients = has_gradients(subject, case)
    try:
        theirs = constants(subject, subject.inline, case, gradients)
    except Exception as error:
        return f"symbolic sizes not checked, since its reference raises {type(error).__name__} on them"
    mine = constants(subject, subject.raw, case, gradients)
    if mine - theirs:
        text = f"{', '.join(sorted(mine - theirs))} become constants, but not for the reference"
        raise Failed(f"{case.name}, with symbols for sizes: {text}", case)
    return "every size that the reference keeps symbolic stays so"
