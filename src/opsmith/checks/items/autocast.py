"""In an autocast region the op follows its policy, in dtypes and values; gradients have the inputs' dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...operator.op import Op
from .. import values as call_values
from ..accuracy.evaluate import Named, evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Comparison, Truth, mismatch
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject, short
from ._cases import generated_case, has_gradients, skip_random
from ._compare import failing_on_error

REGIONS = {"cpu": (torch.bfloat16, torch.float16), "cuda": (torch.float16, torch.bfloat16)}
POLICIES = ("keep", "lower", "float32")


def check(subject: Subject) -> str:
    _require_declared_policy(subject)
    followed = _policies_of(subject)
    tried = []
    for region in _regions(subject):
        for dtype in (torch.float32, region, torch.float64):
            if dtype in subject.dtypes:
                case = generated_case(subject, (dtype,))
                skip_random(subject, case)
                followed = _followed_policies(subject, case, region, followed)
                tried.append(f"{short(dtype)} in {short(region)}")
    if not tried:
        raise Skipped("its reference takes none of the dtypes that autocast casts between")
    text = ", ".join(short(each) if isinstance(each, torch.dtype) else f"'{each}'" for each in followed)
    return f"policy {text}: {', '.join(tried)}"


def check_call(subject: Subject, case: Case) -> None:
    for region in _regions(subject):
        if case.dtype in (torch.float32, region, torch.float64):
            _followed_policies(subject, case, region, _policies_of(subject))


def _regions(subject: Subject) -> Sequence[torch.dtype]:
    """The dtypes that regions cast to."""
    return REGIONS[subject.device] if subject.full or subject.device == "cuda" else REGIONS["cpu"][:1]


def _policies_of(subject: Subject) -> Sequence[Any]:
    """The declared policy; all possible ones if none is declared."""
    if not isinstance(subject.op, Op):
        return POLICIES
    return (subject.op._families.default.forward.autocast.get(subject.device, "keep"),)


def _require_declared_policy(subject: Subject) -> None:
    """An op that is declared to be computed in float32 is not registered to be cast to anything else."""
    if not isinstance(subject.op, Op) or subject.op._families.autocast != "float32":
        return
    (policy,) = _policies_of(subject)
    if policy not in ("float32", torch.float32):
        registered = f"op._families.default.forward.autocast[{subject.device!r}]"
        line = f"assert op._families.autocast != 'float32' or {registered} in ('float32', torch.float32)"
        raise Failed(f"it is declared with autocast='float32', and registered to be cast to {policy}", None, [line])


def _followed_policies(subject: Subject, case: Case, region: torch.dtype, policies: Sequence[Any]) -> Sequence[Any]:
    """The policies that the op may be following. Raises Failed if it follows none."""
    gradients = has_gradients(subject, case)
    held, wrong = [], []
    for policy in policies:
        target = {"keep": None, "lower": region, "float32": torch.float32}.get(policy, policy)
        if (target or case.dtype) not in subject.dtypes and case.dtype != torch.float64:
            continue  # the reference does not accept tensors of that dtype
        with failing_on_error(case):
            found = _compared(subject, case.values, target, region, gradients)
        bad = [each for each in found if not each]
        wrong += [f"policy {policy!r}: {each.what}: {each.message}" for each in bad[:1]]
        held += [] if bad else [policy]
    if not held and wrong:
        raise case.named(f"{case.name}, in a region to {short(region)}").failed("; ".join(wrong))
    return held or policies


def _compared(
    subject: Subject, values: Sequence[Any], target: torch.dtype | None, region: torch.dtype, gradients: bool
) -> list[Comparison]:
    """The call in the region, compared with the reference outside on inputs cast to `target`."""
    # Inputs that the target dtype represents, so that the cast rounds nothing.
    exact = _cast(subject, values, target, back=True)
    lowered = _cast(subject, exact, target)
    truth = Truth(subject.arguments, subject.inline, lowered, gradients, rounding_of(subject.op, lowered, gradients))

    def called(given: Sequence[Any]) -> Any:
        with torch.autocast(subject.device, dtype=region):
            return subject.raw(given)

    given = evaluate(subject.arguments, called, exact, gradients=gradients)
    leaves = zip(*(call_values.floating(subject.arguments, each) for each in (exact, lowered)), strict=True)
    results = iter(subject.reference(lowered))
    wrong: list[Comparison] = []
    computed: list[Named] = []
    for what, mine in given:
        if what.startswith("gradient"):
            leaf, cast = next(leaves)
            if mine is not None and mine.dtype != leaf.dtype:
                wrong.append(mismatch(what, f"{mine.dtype} for an input of {leaf.dtype}"))
            mine = None if mine is None else mine.to(cast.dtype)  # in which it was computed
        else:
            theirs = next(results)
            if mine is not None and mine.dtype != theirs.dtype and not theirs.is_complex():
                wrong.append(mismatch("result", f"{mine.dtype} where the reference gives {theirs.dtype}"))
        computed.append((what, mine))
    return wrong or truth.beside(computed)


def _cast(subject: Subject, values: Sequence[Any], target: torch.dtype | None, back: bool = False) -> list[Any]:
    """Floating tensors of the region's device in the target dtype, except float64 and tensors changed in place. `back`:
    rounded to that dtype, in their own dtype."""

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        eligible = tensor.is_floating_point() and tensor.dtype != torch.float64 and tensor.device.type == subject.device
        if target is None or not eligible:
            return tensor
        rounded = tensor.detach().to(target)
        return rounded.to(tensor.dtype) if back else rounded

    pairs = zip(subject.arguments, values, strict=True)
    return [v if a.mutated else call_values.mapped([a], [v], cast)[0] for a, v in pairs]
