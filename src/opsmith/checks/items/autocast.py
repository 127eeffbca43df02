"""In an autocast region the op follows its policy, in dtypes and values; gradients have the inputs' dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...operator.op import Op
from ..calls.autocast import compared, policies_of
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject, short
from ._cases import arguments_of, generated_case, has_gradients, skip_random
from ._compare import failing_on_error

REGIONS = {"cpu": (torch.bfloat16, torch.float16), "cuda": (torch.float16, torch.bfloat16)}


def check(subject: Subject) -> str:
    _require_declared_policy(subject)
    regions = REGIONS[subject.device] if subject.full or subject.device == "cuda" else REGIONS["cpu"][:1]
    followed: list[Any] = list(policies_of(subject))
    tried = []
    for region in regions:
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


def _require_declared_policy(subject: Subject) -> None:
    """An op that is declared to be computed in float32 is not registered to be cast to anything else."""
    if not isinstance(subject.op, Op) or subject.op._families.autocast != "float32":
        return
    (policy,) = policies_of(subject)
    if policy not in ("float32", torch.float32):
        registered = f"op._families.default.forward.autocast[{subject.device!r}]"
        line = f"assert op._families.autocast != 'float32' or {registered} in ('float32', torch.float32)"
        raise Failed(f"it is declared with autocast='float32', and registered to be cast to {policy}", None, [line])


def _followed_policies(subject: Subject, case: Case, region: torch.dtype, policies: Sequence[Any]) -> list[Any]:
    """The policies that the op may be following. Raises Failed if it follows none."""
    gradients = has_gradients(subject, case)
    own = case.requiring() if gradients else case
    options = f"device={subject.device!r}, dtype={region}"
    lines = [f"opsmith.checks.assert_autocast_matches(op, {arguments_of(case)}, {options})"]
    held, wrong = [], []
    for policy in policies:
        target = {"keep": case.dtype, "lower": region, "float32": torch.float32}.get(policy, policy)
        if target not in subject.dtypes and case.dtype != torch.float64:
            continue  # the reference does not accept tensors of that dtype
        with failing_on_error(own, lines):
            found = compared(subject, case.values, policy, region, gradients)
        bad = [each for each in found if not each]
        wrong += [f"policy {policy!r}: {each.what}: {each.message}" for each in bad[:1]]
        held += [] if bad else [policy]
    if not held and wrong:
        raise Failed(f"{case.name}, in a region to {short(region)}: {'; '.join(wrong)}", own, lines)
    return held or list(policies)
