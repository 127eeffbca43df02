"""A process forked after the op was used can call it: forward, and backward where torch's own operators can."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from ...operator.adopted import Adopted
from ...operator.op import Op
from ..accuracy.evaluate import outputs
from ..isolation import forked
from ..memory import same_bits
from ..reproduction import in_new_process
from ..subject import SMALL, Subject
from ._cases import arguments_of, has_gradients, skip_random

LEVEL = "full"
FAULTS = {"false": "gives other numbers", "raises": "raises", "hangs": "does not come back", "dies": "crashes"}


def check(subject: Subject) -> str:
    # The largest of the small ones, which is shared between threads.
    cases = [case for case in subject.cases(torch.float32, SMALL) if case.has_elements]
    case = max(cases, key=lambda case: case.numel) if cases else subject.first_case()
    skip_random(subject, case)
    directions = ("forward", "backward") if has_gradients(subject, case) else ("forward",)
    call = f"opsmith.checks.items.fork.endings(op, {directions}, {arguments_of(case)})"
    # In another process, since a faulty fork can end its parent too.
    finished = in_new_process(subject, [*case.lines, "import json", f"print(json.dumps({call}))"])
    if finished.status != 0:
        raise case.failed(f"the process that was to fork: {finished.message}", [call])
    summary = []
    for what, (mine, theirs) in json.loads(finished.output.splitlines()[-1]).items():
        if mine == "true" or (mine == "raises" and theirs == "raises"):
            summary.append(f"{what}: {'right' if mine == 'true' else 'refused, as by torch'}")
        elif theirs in ("true", "raises"):
            lines = [f"found = {call}", f"assert found[{what!r}][0] == 'true', found"]
            raise case.failed(f"{what} in a forked process {FAULTS[mine]}", lines)
        else:
            summary.append(f"{what}: torch's own operators {theirs.removesuffix('s')} here")
    return "; ".join(summary)


def endings(op: Op | Adopted, directions: tuple[str, ...], /, *args: Any, **kwargs: Any) -> dict[str, tuple[str, str]]:
    """{'forward': (how a forked call of the op ends, of the reference)}, and backward if forward ends well."""
    found: dict[str, tuple[str, str]] = {}
    for direction in directions:
        if all(mine == "true" for mine, _ in found.values()):
            options = {**kwargs, "gradients": direction == "backward"}
            theirs, mine = (_ending(op, args, {**options, "reference": each}) for each in (True, False))
            found[direction] = mine, theirs
    return found


def _ending(op: Op | Adopted, args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """How a call ends in a forked process, after one on all threads and one on a single thread, with which it is
    compared: on more threads, sums may be in another order."""
    threads = torch.get_num_threads()
    outputs(op, *args, **options)
    torch.set_num_threads(1)
    try:
        first = outputs(op, *args, **options)
        return in_fork(lambda: same_bits(first, outputs(op, *args, **options)))
    finally:
        torch.set_num_threads(threads)


def in_fork(function: Callable[[], bool], seconds: int = 10) -> str:
    """How a call ends in a forked process with one thread, such as a DataLoader worker: 'true', 'false', 'raises',
    'hangs' or 'dies'."""
    same, status, _ = forked(function, seconds)
    if same is not None:
        return "true" if same else "false"
    return {1: "raises", None: "hangs"}.get(status, "dies")
