"""Second gradients match the reference, also for arbitrary incoming gradients, and gradgradcheck agrees."""

from __future__ import annotations

import functools

import torch

from ...errors import UnsavedInputError
from ..accuracy.truth import Comparison
from ..cases.case import Case
from ..outcome import Skipped
from ..subject import Subject
from ._compare import failing_on_error, require, require_derivatives
from ._derivatives import check_derivative, probe, second_gradients

ON = ("cpu", "cuda", "emulated")
MOST = 24
"""Elements of the leaves that gradgradcheck goes through: it takes their square in calls."""


def check(subject: Subject) -> str:
    largest = require_derivatives(subject, check_call)
    return "; ".join(filter(None, [largest, _gradgradcheck(subject)]))


def check_call(subject: Subject, case: Case) -> list[Comparison]:
    form = second_gradients(subject, case)
    try:
        truth = form.truth()
    except RuntimeError as error:
        raise Skipped(f"its reference has no second gradient: {str(error).splitlines()[0]}") from None
    with failing_on_error(case):
        try:
            found = form.of(subject.call)
        except UnsavedInputError as error:  # by choice: what a backward kernel does not name takes no memory
            raise Skipped(f"refused, not wrong: {str(error).splitlines()[0]}") from None
    return require(case, form.renamed(truth.beside(found)))


def _gradgradcheck(subject: Subject) -> str:
    case = probe(subject, MOST)
    if case is None:
        return "no sample in float64 is small enough for gradgradcheck"
    leaves = case.requiring()
    check = functools.partial(torch.autograd.gradgradcheck, gen_non_contig_grad_outputs=True)
    arguments = f"{leaves.function_of_leaves()}, {leaves.leaf_tuple()}, gen_non_contig_grad_outputs=True"
    return check_derivative(subject, leaves, check, f"torch.autograd.gradgradcheck({arguments})")
