"""Each kernel that `using` can select matches the reference, results and gradients."""

from __future__ import annotations

import torch

from ...operator.op import Op
from ..outcome import Skipped, Uncovered
from ..subject import SMALL, TOO_LARGE, Subject
from ._cases import skip_random
from ._compare import check_match, with_kernel

ON = ("cpu", "cuda", "emulated")
REFERENCE = "reference"


def check(subject: Subject) -> str:
    op = subject.op
    if not isinstance(op, Op):
        raise Skipped("it was registered elsewhere, and has no kernels to pick from")
    # The reference runs where no kernel does.
    names = list(op._families.emulated) if subject.emulated else [*dict.fromkeys(subject.kernels), REFERENCE]
    cases = []
    for dtype in subject.dtypes:
        found = subject.some_cases(dtype)
        cases += found if subject.full or dtype is torch.float32 else found[:1]
    for name in names:
        for case in cases:
            skip_random(subject, case)
            with with_kernel(subject, name):
                check_match(subject, case)
    if not cases or not names:
        raise Uncovered(f"{TOO_LARGE} to {SMALL} elements")
    return ", ".join(names)
