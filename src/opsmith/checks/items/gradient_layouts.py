"""Gradients of results may have any memory layout: expanded from one number, transposed, sliced, misaligned."""

from __future__ import annotations

import torch

from .. import layouts
from ..cases.case import Case
from ..outcome import Skipped
from ..subject import Subject
from ._layouts import NO_LAYOUTS, layout_cases
from ._truth import given, judged, matching, truth_of

ON = ("cpu", "cuda", "emulated")


def check(subject: Subject) -> str:
    tried: set[str] = set()
    cases = 0
    for dtype in subject.dtypes if subject.full else subject.dtypes[:1]:
        for case in layout_cases(subject, dtype):
            cases += 1
            if subject.differentiates(case):
                tried |= _each_layout(subject, case)
    if not cases:
        raise Skipped(NO_LAYOUTS)
    if not tried:
        raise subject.without_gradient()
    return ", ".join(sorted(tried))


def _each_layout(subject: Subject, case: Case) -> set[str]:
    results = [result for result in subject.reference(case.requiring().values) if result.requires_grad]
    found = {layout for result in results for layout in layouts.layouts_for(result)}
    contiguous = truth_of(subject, case)
    for layout in sorted(found):
        lay = _where_it_fits(layout)
        laid = case.named(f"{case.name}, gradients of results {layout}")
        truth = truth_of(subject, case, lay=lay) if layout in layouts.CHANGING else contiguous
        line = matching(case, grad_layout=layout)
        judged(laid, truth.beside(given(subject, laid, line=line, lay=lay)), line)
    return found


def _where_it_fits(layout: str) -> layouts.Layout:
    """Results may have different numbers of dimensions."""

    def lay(tensor: torch.Tensor) -> torch.Tensor:
        return layouts.LAYOUTS[layout](tensor) if layout in layouts.layouts_for(tensor) else tensor

    return lay
