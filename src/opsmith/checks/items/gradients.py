"""First gradients match the reference's autograd within rounding error, and gradcheck agrees."""

from __future__ import annotations

import torch

from ..outcome import Skipped
from ..subject import SMALL, Subject
from ._cases import each_case
from ._compare import check_match, largest_errors
from ._derivatives import check_derivative, probe

ORDER = 2
ON = ("cpu", "cuda", "emulated")
MOST = 64
"""Elements of the leaves that gradcheck goes through one by one."""


def check(subject: Subject) -> str:
    found = []
    for case in each_case(subject):
        if subject.differentiates(case):
            compared = check_match(subject, case, True, figures=True)
            found += [(case.dtype, each) for each in compared if each.what.startswith("gradient")]
    largest = largest_errors(found)
    has_complex = any(subject.differentiates_complex(case) for case in subject.cases(torch.float64, SMALL))
    of_complex = _gradcheck(subject, of_complex=True) or "gradcheck of complex numbers" if has_complex else ""
    if not largest and not of_complex:
        raise Skipped("no sample has a result with a gradient")
    of_real = [largest, _gradcheck(subject)] if largest else []
    return "; ".join(filter(None, [*of_real, of_complex]))


def _gradcheck(subject: Subject, of_complex: bool = False) -> str:
    """Why gradcheck could not run; empty if it passed."""
    case = probe(subject, MOST, Subject.differentiates_complex if of_complex else Subject.differentiates)
    if case is None:
        return f"no sample {'of complex numbers' if of_complex else 'in float64'} is small enough for gradcheck"
    leaves = case.requiring(complex_too=of_complex)
    line = f"torch.autograd.gradcheck({leaves.function_of_leaves()}, {leaves.leaf_tuple()})"
    return check_derivative(subject, leaves, torch.autograd.gradcheck, line)
