"""Comparison of the op with its reference, as several items need it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ...operator.op import Op
from ..accuracy.evaluate import Named, weights_of
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Comparison, Function, NoTruthError, Truth
from ..cases.case import Case
from ..memory import same_bits
from ..outcome import Failed, ReferenceRaises, Skipped
from ..subject import Subject, short
from ._cases import arguments_of, differentiable_cases


def check_match(
    subject: Subject,
    case: Case,
    gradients: bool | None = None,
    *,
    truth: Truth | None = None,
    figures: bool = False,
    lines: Sequence[str] | None = None,
    **options: Any,
) -> list[Comparison]:
    """Compares results and, if there are any, gradients. Raises Failed for the first that does not match.

    Args:
        gradients: None to find out whether there are any.
        truth: what the reference returns, if known already.
        figures: whether to measure torch's own error in half types too.
        lines: of a reproduction; None for `assert_matches`, () for the check_call of the item.
        options: `only` and `lay` of `evaluate`.
    """
    gradients = subject.differentiates(case) if gradients is None else gradients
    truth = truth or reference_truth(subject, case, gradients, figures=figures, **options)
    lines = match_lines(case, gradients) if lines is None else lines
    return require(case, truth.beside(op_outputs(subject, case, gradients, lines=lines, **options)), lines)


def match_lines(case: Case, gradients: bool) -> list[str]:
    return [f"opsmith.checks.assert_matches(op, {arguments_of(case)}{'' if gradients else ', gradients=False'})"]


def check_comparable(subject: Subject, case: Case) -> bool:
    """Compares a call, unless the reference rejects it or is not finite: what is inf or NaN in one order of summation
    may not be in another. Returns whether it was compared."""
    gradients = subject.differentiates(case)
    try:
        truth = reference_truth(subject, case, gradients)
        if not (subject.elementwise or truth.is_finite):
            return False
        check_match(subject, case, gradients, truth=truth)
    except ReferenceRaises:
        return False
    return True


def reference_truth(
    subject: Subject, case: Case, gradients: bool = True, reference: Function | None = None, **options: Any
) -> Truth:
    """What the reference returns. Raises ReferenceRaises if it rejects the call. `options` are Truth's."""

    def without_op() -> object:
        return subject.evaluate(case, subject.differentiates(case), subject.inline)

    with failing_on_error(case, match_lines(case, gradients), without_op):
        rounding = rounding_of(subject.op, case.values, gradients)
    try:
        return Truth(subject.arguments, reference or subject.inline, case.values, gradients, rounding, **options)
    except NoTruthError:
        raise
    except Exception as error:
        raise ReferenceRaises(case, error) from error


def op_outputs(
    subject: Subject,
    case: Case,
    gradients: bool = True,
    function: Function | None = None,
    lines: Sequence[str] = (),
    **options: Any,
) -> list[Named]:
    """What the op returns. Raises Failed if it raises. `options` are evaluate's."""
    with failing_on_error(case, lines):
        return subject.evaluate(case, gradients, function, **options)


@contextlib.contextmanager
def failing_on_error(
    case: Case, lines: Sequence[str] = (), reference: Callable[[], object] | None = None
) -> Iterator[None]:
    """Turns what the op raises inside into Failed. If `reference`, the same without the op, raises too, into
    ReferenceRaises."""
    try:
        yield
    except (Failed, Skipped):
        raise
    except Exception as error:
        if reference is not None:
            try:
                reference()
            except Exception as theirs:
                raise ReferenceRaises(case, theirs) from theirs
        message = str(error).strip()
        raise case.failed(f"it raises {type(error).__name__}: {message}", lines) from error


@contextlib.contextmanager
def with_kernel(subject: Subject, kernel: str) -> Iterator[None]:
    """Inside, the op runs the kernel of this name, and a failure names it; '' for the one that the op selects."""
    with subject.op.using(kernel) if kernel and isinstance(subject.op, Op) else contextlib.nullcontext():
        try:
            yield
        except Failed as failed:
            if kernel:
                failed.kernel, failed.message = kernel, f"kernel {kernel!r}: {failed.message}"
            raise


def results_and_weights(function: Function, case: Case) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The results of a call that require a gradient, and the gradients to pass to them."""
    results = [result for result in function(case.values) if result.requires_grad]
    return results, [weights_of(result) for result in results]


def gradients_of(
    case: Case, results: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """The gradients of the leaves. The graph is kept."""
    leaves = [leaf for _, leaf in case.leaves()]
    return list(torch.autograd.grad(results, leaves, weights, retain_graph=True, allow_unused=True))


def same(mine: Sequence[Named], other: Sequence[Named]) -> bool:
    """Whether results and gradients of two calls are equal in every bit."""
    return len(mine) == len(other) and same_bits([tensor for _, tensor in mine], [tensor for _, tensor in other])


def require(case: Case, found: Sequence[Comparison], lines: Sequence[str] = ()) -> list[Comparison]:
    """The comparisons. Raises Failed for the first that does not hold."""
    for each in found:
        if not each:
            raise case.failed(f"{each.what}: {each.message}", lines)
    return list(found)


def require_derivatives(subject: Subject, check_call: Callable[[Subject, Case], list[Comparison]]) -> str:
    """Checks differentiable cases in float64 and float32, and returns the summary of their errors. Raises Skipped if
    there are none."""
    cases = differentiable_cases(subject, (torch.float64, torch.float32))
    summary = largest_errors([(case.dtype, each) for case in cases for each in check_call(subject, case)])
    if not summary:
        raise subject.without_gradient()
    return summary


def largest_errors(found: Sequence[tuple[torch.dtype, Comparison]]) -> str:
    """'largest error in ULP: float32 2.4 (torch 1.9), float64 3'; '' for none."""
    parts = []
    for dtype in dict.fromkeys(dtype for dtype, _ in found):
        compared = [each for own, each in found if own is dtype]
        torchs = [each.reference_ulps for each in compared if each.reference_ulps is not None]
        largest = f"{short(dtype)} {max(each.ulps for each in compared):.3g}"
        parts.append(f"{largest} (torch {max(torchs):.3g})" if torchs else largest)
    return f"largest error in ULP: {', '.join(parts)}" if parts else ""
