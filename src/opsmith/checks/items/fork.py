"""A process forked after the op was used can call it: forward, and backward where torch's own operators can."""

from __future__ import annotations

import json

import torch

from ..cases.case import Case
from ..outcome import Failed
from ..process import run
from ..subject import SMALL, Subject
from ._choice import deterministic, has_gradients, outputs_of

LEVEL = "full"


def check(subject: Subject) -> str:
    case = _case(subject)
    deterministic(subject, case)
    gradients = has_gradients(subject, case)
    found = _endings(subject, case, gradients)
    summary = []
    for what, (mine, theirs) in found.items():
        if mine == "true" or (mine == "raises" and theirs == "raises"):
            summary.append(f"{what}: {'right' if mine == 'true' else 'refused, as by torch'}")
        elif theirs in ("true", "raises"):
            lines = _lines(case, what == "backward", "op")
            lines.append("assert opsmith.checks.calls.concurrency.in_fork(same) == 'true'")
            raise Failed(f"{case.name}: {what} in a forked process {_WORDS[mine]}", case, lines)
        else:
            summary.append(f"{what}: torch's own operators {theirs.removesuffix('s')} here")
    return "; ".join(summary)


_WORDS = {"false": "gives other numbers", "raises": "raises", "hangs": "does not come back", "dies": "crashes"}


def _endings(subject: Subject, case: Case, gradients: bool) -> dict[str, tuple[str, str]]:
    """{'forward': (how it ends for the op, how for the reference)}, and backward where forward ends well. In another
    process, for a fork that goes wrong can take its parent along."""
    lines = [*case.lines, "import json", "found = {}"]
    for what, with_gradients in (("forward", False), ("backward", True)):
        if what == "backward" and not gradients:
            continue
        steps = []
        for function in ("reference", "op"):
            steps += _lines(case, with_gradients, function)
            steps.append(
                f"found.setdefault('{what}', {{}})['{function}'] = opsmith.checks.calls.concurrency.in_fork(same)"
            )
            steps.append("torch.set_num_threads(threads)")
        well = "all(each['op'] == 'true' for each in found.values())"
        lines += [f"if {well}:", *(f"    {step}" for step in steps)]
    finished = run(subject, [*lines, "print(json.dumps(found))"])
    if finished.status != 0:
        raise Failed(f"{case.name}: the process that was to fork: {finished.message}", None, lines)
    found = json.loads(finished.output.splitlines()[-1])
    return {what: (each["op"], each["reference"]) for what, each in found.items()}


def _lines(case: Case, gradients: bool, function: str) -> list[str]:
    """The lines that use it here, on all threads, and bind `same`: whether a call gives the same again, on one. Sums
    may be in another order on others."""
    call = outputs_of(case, gradients)
    call = call if function == "op" else f"{call[:-1]}, reference=True)"
    return [
        f"threads = torch.get_num_threads(); {call}; torch.set_num_threads(1)",
        f"first = {call}",
        f"same = lambda: opsmith.checks.memory.same_bits(first, {call})",
    ]


def _case(subject: Subject) -> Case:
    """The largest that is small: one over which threads are shared out."""
    cases = [case for case in subject.cases(torch.float32, SMALL) if case.has_elements]
    return max(cases, key=lambda case: case.numel) if cases else subject.first_case()
