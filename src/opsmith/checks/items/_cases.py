"""Which calls the items use, and how a call is written in a reproduction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch

from ...errors import OpsmithError
from ...operator.op import Op
from ...reference import purity
from ..cases import patterns
from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import Pattern, patterns_of
from ..outcome import Skipped, Uncovered
from ..subject import SMALL, TOO_LARGE, Subject, short
from ._fake import on_fake

FEW, MANY = 2, 8
LITTLE = 128
"""Elements of a call on which anything is affordable, including all second derivatives."""
MOST = 8
"""The size of a dimension in generated calls."""
FOUR_DIMENSIONS = (2, 3, 4, 5)
"""The shape of the images that a pointwise op is given in addition to its samples."""
MODERATE = 4096
"""Elements of a tensor in a call that is compared many times, for layouts or for derivatives."""
NO_LAYOUTS = "no sample has a tensor with dimensions, more than one element and finite numbers"
READS_VALUES = (
    "its reference reads the values of its inputs, which fake tensors do not have; register_fake makes it traceable"
)


# --- Properties of a call ---------------------------------------------------------------------------------------------


def draws_random_numbers(subject: Subject, case: Case) -> bool:
    return purity.draws_random_numbers(lambda: subject.reference(case.values), case.every_tensor())


def skip_random(subject: Subject, case: Case) -> None:
    """Raises Skipped if two equal calls may give different results."""
    if draws_random_numbers(subject, case):
        raise Skipped("its reference draws random numbers, and no two calls are alike")


def has_gradients(subject: Subject, case: Case) -> bool:
    """Whether the op has a gradient for this call. An op whose reference draws random numbers may refuse."""
    if case not in subject.known_gradients:
        found = subject.differentiates(case)
        if found and draws_random_numbers(subject, case):
            try:
                subject.evaluate(case)
            except OpsmithError:
                found = False
        subject.known_gradients[case] = found
    return subject.known_gradients[case]


def accelerated(subject: Subject) -> bool:
    """Whether anything but the reference may run: a kernel of the op, or an adopted operator."""
    return bool(subject.kernels) or subject.keeps_layout or not isinstance(subject.op, Op)


def skip_untraceable(subject: Subject) -> None:
    """Raises Skipped if no tracer can handle the op by its nature: the shape rule is derived from a reference with an
    operator such as bincount, or with results whose sizes depend on values. A reference that only branches on values
    can be written without the branch, so that op fails."""
    error = value_access(subject)
    if error is not None and ("_local_scalar_dense" not in str(error) or _sizes_depend_on_values(subject)):
        raise Skipped(READS_VALUES)


def value_access(subject: Subject) -> Exception | None:
    """The error of the reference on fake tensors, which have no values, if the shape rule is derived from it."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    if isinstance(subject.op, Op) and subject.op._families.default.forward.written_fake is not None:
        return None
    try:
        on_fake(subject, subject.inline, generated_case(subject), gradients=False)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        return error
    return None


def _sizes_depend_on_values(subject: Subject) -> bool:
    case = generated_case(subject)
    shapes = [result.shape for result in subject.reference(case.values)]
    changes: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        lambda t: t // 2 if patterns.is_integer(t.dtype) else t,
        lambda t: t * 0,
        lambda t: -t if t.is_floating_point() else t,
    )
    others = [case.each_tensor(change, "{}") for change in changes]
    accepted = [other for other in others if taken(subject, other)]
    return any([result.shape for result in subject.reference(other.values)] != shapes for other in accepted)


# --- Selected samples and generated calls -----------------------------------------------------------------------------


def each_case(subject: Subject) -> Iterator[Case]:
    """Some small samples in every dtype. Raises Skipped if the reference draws random numbers."""
    for dtype in subject.dtypes:
        for case in subject.some_cases(dtype):
            skip_random(subject, case)
            yield case


def various_cases(subject: Subject, limit: int = SMALL) -> list[Case]:
    """Some samples in every dtype, and more in float32, since a kernel's end depends on the size. One per dtype if no
    kernel runs."""
    found: list[Case] = []
    for dtype in subject.dtypes:
        count = 1 if not accelerated(subject) else MANY if dtype is torch.float32 else FEW
        found += subject.some_cases(dtype, limit, max(count, 2))[:count]
    if not found:
        raise Uncovered(f"{TOO_LARGE} to {limit} elements")
    return found


def small_case(subject: Subject, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> Case:
    """The smallest sample with finite numbers, no empty tensor and, if there is one, two elements in its largest
    tensor."""
    for dtype, limit in itertools.product(dtypes, (LITTLE, SMALL)):
        plain = [case for case in subject.cases(dtype, limit) if case.has_elements and case.is_finite]
        if found := [case for case in plain if case.numel > 1] or plain:
            return min(found, key=elements_of)
    text = " or ".join(short(dtype) for dtype in dtypes)
    raise Uncovered(f"no sample in {text} with finite numbers and no empty tensor can be cut down to {SMALL} elements")


def resized(subject: Subject, count: int, dtype: torch.dtype = torch.float32) -> list[Case]:
    """Small calls that differ in one size, of the first dimension if possible. No size is 0 or 1, so that one graph
    with a symbol for it fits all. Fewer than `count` if the op accepts no others."""
    found: list[Case] = []
    for pattern in patterns_of(subject, dtype):
        sizes = pattern.sizes_of(pattern.base)
        small = [own if group in pattern.frozen else min(own, MOST) for group, own in enumerate(sizes)]
        free = [group for group, own in enumerate(sizes) if own > 1 and group not in pattern.frozen]
        for group in sorted(free, key=lambda group: pattern.groups[group].is_constant):
            cases = []
            for size in range(3, 3 + 2 * count, 2):
                chosen = [size if each == group else own for each, own in enumerate(small)]
                cases.append(pattern.case(chosen, seed=subject.seed, name=f"a call of size {size}, {short(dtype)}"))
            found = max(found, [case for case in cases if taken(subject, case)], key=len)
            if len(found) == count:
                return found
    return found


def generated_case(subject: Subject, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> Case:
    """A small call of size 3 in the first dtype that allows one, else the smallest sample."""
    found = (case for dtype in dtypes for case in resized(subject, 1, dtype))
    return next(found, None) or small_case(subject, dtypes)


def capped_sizes(pattern: Pattern, most: int) -> list[int]:
    """The sizes of the pattern's smallest case, each at most `most` if it may vary."""
    sizes = zip(pattern.groups, pattern.sizes_of(pattern.base), strict=True)
    return [
        size if number in pattern.frozen or group.is_constant else min(size, most)
        for number, (group, size) in enumerate(sizes)
    ]


def differentiable_cases(subject: Subject, dtypes: Sequence[torch.dtype]) -> list[Case]:
    """One or two samples per dtype that have gradients: of different ranks, none empty."""
    found: dict[tuple[torch.dtype, tuple[int, ...]], Case] = {}
    for dtype in dtypes:
        for case in subject.cases(dtype, MODERATE):
            ranks = dtype, tuple(tensor.ndim for tensor in case.every_tensor())
            if ranks in found or not is_smooth(subject, case) or not subject.differentiates(case):
                continue
            found[ranks] = case
            if not subject.full and sum(key[0] is dtype for key in found) == 2:
                break
    return list(found.values())


def is_smooth(subject: Subject, case: Case) -> bool:
    """Whether no tensor is empty, and all numbers are finite: of the inputs, and of the reference's results, since a
    root or a logarithm of finite numbers may be NaN. Raises Skipped if the reference draws random numbers."""
    if not case.has_elements or not case.is_finite or elements_of(case) > SMALL:
        return False
    skip_random(subject, case)
    results = subject.reference(case.values)
    return all(bool(result.isfinite().all()) for result in results if result.is_floating_point())


def elements_of(case: Case) -> int:
    """Of all tensors together."""
    return sum(tensor.numel() for tensor in case.every_tensor())


# --- Calls for memory layouts -----------------------------------------------------------------------------------------


def layout_cases(subject: Subject) -> Iterator[Case]:
    """Calls to try memory layouts on, in every dtype at level "full" and in the first otherwise."""
    for dtype in subject.dtypes if subject.full else subject.dtypes[:1]:
        yield from _layout_cases(subject, dtype)


def _layout_cases(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """The first filled sample for each combination of ranks; at level quick the two with the most dimensions. For a
    pointwise op, which accepts any number of dimensions, also one with four."""
    found: list[Case] = []
    for pattern in patterns_of(subject, dtype, MODERATE):
        filled = [case for case in pattern.cases if case.numel > 1 and _has_finite_dimensions(case)]
        found += filled[:1] or _grown(subject, pattern)
        if subject.keeps_layout and not any(case.name == "four dimensions" for case in found):
            shapes = [FOUR_DIMENSIONS if slot.ndim else () for slot in pattern.slots]
            case = pattern.case((), shapes=shapes, seed=subject.seed, name="four dimensions")
            found += [case] if taken(subject, case) else []
    found.sort(key=lambda case: -max(tensor.ndim for tensor in case.every_tensor()))
    for case in found[:1]:
        skip_random(subject, case)
    return found if subject.full else found[:2]


def _grown(subject: Subject, pattern: Pattern) -> list[Case]:
    """The call with size 5 in place of 1, if the reference accepts it: a single element has no layout."""
    sizes = [5 if size == 1 else size for size in pattern.sizes_of(pattern.base)]
    case = pattern.case(sizes, seed=subject.seed, name="a call of 5 each way")
    has_dimensions = any(tensor.ndim for tensor in case.every_tensor())
    return [case] if has_dimensions and case.numel <= MODERATE and taken(subject, case) else []


def _has_finite_dimensions(case: Case) -> bool:
    """Whether there are tensors with dimensions, all of them filled with finite numbers."""
    tensors = [tensor for tensor in case.every_tensor() if tensor.ndim]
    return bool(tensors) and all(t.numel() and bool(t.isfinite().all()) for t in tensors)


# --- Reproductions ----------------------------------------------------------------------------------------------------


def arguments_of(case: Case) -> str:
    """'x, bias, scale=scale'"""
    return ", ".join(f"{each.name}={each.name}" if each.keyword_only else each.name for each in case.arguments)


def lines_with_kernel(kernel: str, lines: Sequence[str]) -> list[str]:
    """The lines, run with that kernel; '' for the one that the op selects."""
    return [f"with op.using({kernel!r}):", *(f"    {line}" for line in lines)] if kernel and lines else list(lines)
