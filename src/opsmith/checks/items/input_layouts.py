"""Inputs may have any memory layout, one at a time and all at once; results have the declared layout."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from ...operator.op import Op
from .. import layouts
from ..accuracy.truth import Truth
from ..cases.acceptance import taken
from ..cases.case import Case
from ..outcome import Failed, Skipped
from ..subject import Subject
from ._layouts import NO_LAYOUTS, layout_cases
from ._truth import given, judged, truth_of

ON = ("cpu", "cuda", "emulated")


def check(subject: Subject) -> str:
    tried: set[str] = set()
    for dtype in subject.dtypes if subject.full else subject.dtypes[:1]:
        for case in layout_cases(subject, dtype):
            gradients = subject.differentiates(case)
            truth = truth_of(subject, case, gradients)
            for layout, laid in _laid_out(case):
                if layout in layouts.CHANGING and not taken(subject, laid):
                    continue  # offsets that are all the same
                _look(subject, laid, None if layout in layouts.CHANGING else truth, gradients)
                tried.add(layout)
            for twice in _given_twice(case):
                if taken(subject, twice):
                    judged(twice, truth_of(subject, twice, False).beside(given(subject, twice, False)))
                    tried.add("the same tensor twice")
    if not tried:
        raise Skipped(NO_LAYOUTS)
    return ", ".join(sorted(tried))


def _look(subject: Subject, case: Case, truth: Truth | None, gradients: bool) -> None:
    truth = truth or truth_of(subject, case, gradients)
    judged(case, truth.beside(given(subject, case, gradients)))
    if subject.inplace and gradients:  # which is done on a copy, and that lies as it likes
        judged(case, truth_of(subject, case, False).beside(given(subject, case, False)))
    _look_at_strides(subject, case)


def _laid_out(case: Case) -> Iterator[tuple[str, Case]]:
    """(layout, case): each layout of each tensor alone, then of all. What an op changes in place is never expanded:
    torch refuses to write to such a tensor."""
    single = [(argument, tensor) for argument, tensor in case.tensors() if tensor.ndim]
    for argument, tensor in single:
        for layout in layouts.layouts_for(tensor):
            if argument.mutated and layout in layouts.CHANGING:
                continue
            name = f"{case.name}, {argument.name} {layout}"
            code = layouts.code(layout).format(argument.name)
            yield layout, case.changed(argument.name, layouts.LAYOUTS[layout](tensor), code, name)
    every = [tensor for tensor in case.every_tensor() if tensor.ndim]
    if len(single) == len(every) == 1:
        return
    for layout in layouts.LAYOUTS:
        writes = layout in layouts.CHANGING and any(argument.mutated for argument in case.arguments)
        if not writes and all(layout in layouts.layouts_for(tensor) for tensor in every):
            laid = case.each_tensor(
                _of_dimensions(layout),
                f"({layouts.code(layout)} if {{0}}.ndim else {{0}})".replace("{}", "{0}"),
                f"{case.name}, every tensor {layout}",
            )
            yield layout, laid


def _given_twice(case: Case) -> Iterator[Case]:
    """With one tensor as two arguments, where they are alike: op(x, x)."""
    single = [(argument, tensor) for argument, tensor in case.tensors() if not argument.mutated]
    for (first, tensor), (second, other) in itertools.pairwise(single):
        if (tensor.shape, tensor.dtype) == (other.shape, other.dtype):
            yield case.changed(second.name, tensor, first.name, f"{case.name}, {first.name} as {second.name} too")


def _of_dimensions(layout: str) -> layouts.Layout:
    return lambda tensor: layouts.LAYOUTS[layout](tensor) if tensor.ndim else tensor


def _look_at_strides(subject: Subject, case: Case) -> None:
    """Contiguous, or after the inputs as TensorIterator does it. An operator from elsewhere has declared nothing, and
    what is changed in place stays where it is."""
    if not isinstance(subject.op, Op) or subject.inplace:
        return
    for index, result in enumerate(subject.call(case.values)):
        expected = _declared(subject, case, result)
        if expected is None or _that_matter(result.stride(), result) == _that_matter(expected, result):
            continue
        what = "result" if len(subject.signature.results) == 1 and index == 0 else f"result {index}"
        lines = [
            f"results = {case.call()}",
            f"result = results[{index}] if isinstance(results, (tuple, list)) else results",
            f"assert result.stride() == {expected}, result.stride()",
        ]
        text = "TensorIterator's rule gives" if subject.keeps_layout else "contiguous ones are declared,"
        raise Failed(f"{case.name}: {what} has strides {result.stride()}, {text} {expected}", case, lines)


def _declared(subject: Subject, case: Case, result: torch.Tensor) -> tuple[int, ...] | None:
    if not subject.keeps_layout:
        return torch.empty(result.shape, device="meta").stride()
    # torch's own n-ary rule, written apart from opsmith's.
    from torch._prims_common import compute_elementwise_output_strides

    tensors = case.every_tensor()
    if torch.broadcast_shapes(*(tensor.shape for tensor in tensors)) != result.shape:
        return None
    return compute_elementwise_output_strides(*(tensor.expand(result.shape) for tensor in tensors))


def _that_matter(strides: tuple[int, ...], result: torch.Tensor) -> list[int]:
    return [stride for stride, size in zip(strides, result.shape, strict=True) if size > 1] if result.numel() else []
