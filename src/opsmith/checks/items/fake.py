"""On fake tensors the op gives the shapes, dtypes, strides and devices of real ones; symbolic sizes stay symbolic."""

from __future__ import annotations

from ...operator.op import Op
from .. import layouts
from ..accuracy.evaluate import evaluate
from ..accuracy.truth import Function
from ..calls.fake import constants, described, on_fake
from ..cases.acceptance import taken
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from ._choice import LOOKS_AT_NUMBERS, arguments_of, has_gradients, looks_at_numbers, made_up

LIMIT = 1 << 12
"""Elements of a case: what is looked at does not depend on them, and a reference may loop over a dimension."""


def check(subject: Subject) -> str:
    if looks_at_numbers(subject):
        raise Skipped(LOOKS_AT_NUMBERS)
    cases = [case for dtype in subject.dtypes for case in subject.some_cases(dtype, LIMIT)]
    cases += _laid_out_otherwise(subject)
    for case in cases:
        _static(subject, case)
    return f"{len(cases)} calls, with gradients; {_dynamic(subject)}"


# --- Sizes as they are --------------------------------------------------------------------------------------------


def _static(subject: Subject, case: Case) -> None:
    gradients = has_gradients(subject, case)
    wrong = _differences(subject, subject.raw, case, gradients)
    if not wrong:
        return
    # torch's own shape rules are not right everywhere: what is wrong in the same way for the reference is not the op's.
    torchs = {what for what, _, _ in _differences(subject, subject.inline, case, gradients)}
    for what, mine, theirs in wrong:
        if what in torchs or _is_torchs_gradient(subject, what, mine, theirs):
            continue
        name = "opsmith.checks.calls.fake"
        rest = f"{arguments_of(case)}{'' if gradients else ', gradients=False'}"
        lines = [
            f"fake, real = {name}.fake_outputs(op, {rest}), opsmith.checks.outputs(op, {rest})",
            f"assert list(map({name}.described, fake)) == list(map({name}.described, real))",
        ]
        raise Failed(f"{case.name}: {what} is {mine} on fake tensors, but {theirs} on real ones", case, lines)


def _is_torchs_gradient(subject: Subject, what: str, fake: str, real: str) -> bool:
    """The gradient of an operator of somebody else may be computed by torch's operators, some of which report wrong
    strides; nothing relies on the strides of a gradient."""
    own = isinstance(subject.op, Op)
    return not own and what.startswith("gradient") and fake.partition(", strides")[0] == real.partition(", strides")[0]


def _differences(subject: Subject, function: Function, case: Case, gradients: bool) -> list[tuple[str, str, str]]:
    """(what, as it is on fake tensors, as on real ones) for each output that is not the same on both."""
    real = evaluate(subject.arguments, function, case.values, gradients=gradients)
    fake = on_fake(subject.arguments, function, case.values, gradients)
    if len(fake) != len(real):
        return [("what it returns", f"{len(fake)} tensors", f"{len(real)}")]
    pairs = zip(fake, real, strict=True)
    found = [(what, described(mine), described(theirs)) for (what, mine), (_, theirs) in pairs]
    return [each for each in found if each[1] != each[2]]


def _laid_out_otherwise(subject: Subject) -> list[Case]:
    case = made_up(subject)
    names = {name for tensor in case.every_tensor() for name in layouts.layouts_for(tensor)}
    found = []
    for layout in sorted(names):
        change = layouts.LAYOUTS[layout]
        laid = case
        for argument, tensor in case.tensors():
            if layout in layouts.layouts_for(tensor) and not (argument.mutated and layout in layouts.CHANGING):
                laid = laid.changed(argument.name, change(tensor), layouts.code(layout).format(argument.name))
        if layout not in layouts.CHANGING or taken(subject, laid):
            found.append(laid.named(f"{case.name}, {layout}"))
    return found


# --- Sizes as symbols ---------------------------------------------------------------------------------------------


def _dynamic(subject: Subject) -> str:
    case = made_up(subject)
    gradients = has_gradients(subject, case)
    try:
        theirs = constants(subject.arguments, subject.inline, case.values, gradients)
    except Exception as error:
        return f"sizes as symbols are not looked at, for its reference raises {type(error).__name__} on them"
    mine = constants(subject.arguments, subject.raw, case.values, gradients)
    if mine - theirs:
        rest = f"{arguments_of(case)}{'' if gradients else ', gradients=False'}"
        line = f"assert not opsmith.checks.calls.fake.needless_constants(op, {rest})"
        text = f"{', '.join(sorted(mine - theirs))} become constants, but not for the reference"
        raise Failed(f"{case.name}, with symbols for sizes: {text}", case, [line])
    return "every size that the reference keeps symbolic stays so"
