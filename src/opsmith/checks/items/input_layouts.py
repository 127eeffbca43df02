"""Inputs may have any memory layout, one at a time and all at once; results have the declared layout."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from ...generate.expression import Form
from ...generate.generation import LoopGeneration
from ...operator.op import Op
from ...reference.signature import flatten
from .. import layouts
from ..accuracy.truth import Truth
from ..cases.acceptance import taken
from ..cases.case import Case
from ..outcome import Skipped
from ..subject import Subject
from ._cases import NO_LAYOUTS, layout_cases
from ._compare import check_match, reference_truth

ON = ("cpu", "cuda", "emulated")


def check(subject: Subject) -> str:
    tried: set[str] = set()
    for case in layout_cases(subject):
        truth = reference_truth(subject, case, subject.differentiates(case))
        for layout, laid in _with_layouts(case):
            changes = layout in layouts.CHANGING
            if not changes or taken(subject, laid):  # offsets that are all equal do not make a valid call
                check_call(subject, laid, None if changes else truth)
                tried.add(layout)
        for twice in _with_repeated_tensor(case):
            if taken(subject, twice):
                check_match(subject, twice, False)
                tried.add("the same tensor twice")
    if not tried:
        raise Skipped(NO_LAYOUTS)
    return ", ".join(sorted(tried))


def check_call(subject: Subject, case: Case, truth: Truth | None = None) -> None:
    gradients = subject.differentiates(case)
    check_match(subject, case, gradients, truth=truth)
    if subject.inplace and gradients:  # with gradients the op changes a copy, which has its own layout
        check_match(subject, case, False)
    _check_strides(subject, case)


def _with_layouts(case: Case) -> Iterator[tuple[str, Case]]:
    """(layout, case): each layout of each tensor alone, then of all. A mutated argument is never expanded: torch
    refuses to write to such a tensor."""
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
    for layout, change in layouts.LAYOUTS.items():
        writes = layout in layouts.CHANGING and any(argument.mutated for argument in case.arguments)
        if not writes and all(layout in layouts.layouts_for(tensor) for tensor in every):
            code = f"({layouts.code(layout)} if {{0}}.ndim else {{0}})".replace("{}", "{0}")
            name = f"{case.name}, every tensor {layout}"
            yield layout, case.each_tensor(_if_it_has_dimensions(change), code, name)


def _if_it_has_dimensions(change: layouts.Layout) -> layouts.Layout:
    return lambda tensor: change(tensor) if tensor.ndim else tensor


def _with_repeated_tensor(case: Case) -> Iterator[Case]:
    """One tensor passed as two arguments of the same shape and dtype: op(x, x)."""
    single = [(argument, tensor) for argument, tensor in case.tensors() if not argument.mutated]
    for (first, tensor), (second, other) in itertools.pairwise(single):
        if (tensor.shape, tensor.dtype) == (other.shape, other.dtype):
            yield case.changed(second.name, tensor, first.name, f"{case.name}, {first.name} as {second.name} too")


def _check_strides(subject: Subject, case: Case) -> None:
    """Results are contiguous, or laid out by TensorIterator's rule. An adopted operator has declared nothing, and what
    is changed in place stays where it is."""
    if not isinstance(subject.op, Op) or subject.inplace:
        return
    for index, result in enumerate(subject.call(case.values)):
        expected = _declared(subject, case, index, result)
        if expected is None or _significant(result.stride(), result) == _significant(expected, result):
            continue
        what = "result" if len(subject.signature.results) == 1 and index == 0 else f"result {index}"
        text = "contiguous ones are declared,"
        if subject.keeps_layout:
            text = "TensorIterator's rule gives" if subject.elementwise else "contiguous rows, others in order, have"
        raise case.failed(f"{what} has strides {result.stride()}, {text} {expected}")


def _declared(subject: Subject, case: Case, index: int, result: torch.Tensor) -> tuple[int, ...] | None:
    if not subject.keeps_layout:
        return torch.empty(result.shape, device="meta").stride()
    if not subject.elementwise:
        return _of_rows(subject, case, index, result)
    # torch's own n-ary rule, which is independent of opsmith's.
    from torch._prims_common import compute_elementwise_output_strides

    tensors = case.every_tensor()
    if torch.broadcast_shapes(*(tensor.shape for tensor in tensors)) != result.shape:
        return None
    return compute_elementwise_output_strides(*(tensor.expand(result.shape) for tensor in tensors))


def _of_rows(subject: Subject, case: Case, index: int, result: torch.Tensor) -> tuple[int, ...] | None:
    """The rows contiguous where they are the last dimensions, the others in the order that torch's own rule gives."""
    from torch._prims_common import compute_elementwise_output_logical_to_physical_perm as order_of

    assert isinstance(subject.op, Op) and isinstance(subject.op._families.generation, LoopGeneration)
    compiler = subject.op._families.generation.compiler
    level = compiler.level(compiler.forward_arguments(case.values))
    if level is None or level.rows is None:
        return None
    rows = level.rows.dimensions
    tensors = []
    for tensor, form in zip(flatten(case.arguments, case.values), level.rows.forms, strict=True):
        if tensor is None:
            continue
        for dimension in reversed(rows) if form is Form.SQUEEZED else ():
            tensor = tensor.unsqueeze(dimension)
        tensors.append(tensor)
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    order = list(order_of(*(tensor.expand(shape) for tensor in tensors))[0])
    own = [dimension + len(shape) for dimension in rows]
    others = [dimension for dimension in order if dimension not in own]
    if own == list(range(len(others), len(shape))):
        order = [*others, *own]
    if level.result_form(index) is Form.SQUEEZED:
        kept = sorted(others)
        order = [kept.index(dimension) for dimension in others]
    strides, step = [0] * len(order), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= max(1, result.shape[dimension])
    return tuple(strides)


def _significant(strides: tuple[int, ...], result: torch.Tensor) -> list[int]:
    return [stride for stride, size in zip(strides, result.shape, strict=True) if size > 1] if result.numel() else []
