"""Gradients of results may have any memory layout: expanded from one number, transposed, sliced, misaligned."""

from __future__ import annotations

from .. import layouts
from ..cases.case import Case
from ..outcome import Skipped
from ..subject import Subject
from ._cases import NO_LAYOUTS, layout_cases
from ._compare import check_match, reference_truth

ON = ("cpu", "cuda", "emulated")


def check(subject: Subject) -> str:
    cases = list(layout_cases(subject))
    if not cases:
        raise Skipped(NO_LAYOUTS)
    tried = {layout for case in cases if subject.differentiates(case) for layout in check_call(subject, case)}
    if not tried:
        raise subject.without_gradient()
    return ", ".join(sorted(tried))


def check_call(subject: Subject, case: Case) -> set[str]:
    """The layouts that were tried."""
    results = [result for result in subject.reference(case.requiring().values) if result.requires_grad]
    found = {layout for result in results for layout in layouts.layouts_for(result)}
    contiguous = reference_truth(subject, case)
    for layout in sorted(found):
        laid = case.named(f"{case.name}, gradients of results {layout}")
        truth = None if layout in layouts.CHANGING else contiguous
        check_match(subject, laid, True, truth=truth, lines=(), lay=_where_it_fits(layout))
    return found


def _where_it_fits(layout: str) -> layouts.Layout:
    """The layout, applied where it is possible: results may have different numbers of dimensions."""
    change = layouts.LAYOUTS[layout]
    return lambda tensor: change(tensor) if layout in layouts.layouts_for(tensor) else tensor
