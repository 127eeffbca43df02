"""torch.library.opcheck passes: schema, autograd registration, fake tensors, and tracing with symbolic sizes."""

from __future__ import annotations

from typing import Any

import torch

from ...operator.op import Op
from ..accuracy.evaluate import weights_of
from ..cases.case import Case
from ..outcome import Failed
from ..subject import Subject, listed
from ._cases import draws_random_numbers, generated_case, has_gradients, skip_untraceable

ORDER = 60
LIMIT, FEW = 1 << 12, 3
REPEATABLE = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def check(subject: Subject) -> str:
    skip_untraceable(subject)
    cases = [generated_case(subject)]
    for dtype in subject.dtypes if subject.full else ():
        cases += [case for case in subject.cases(dtype, LIMIT) if _is_finite(subject, case)][:FEW]
    tests = REPEATABLE[:-1] if draws_random_numbers(subject, cases[0]) else REPEATABLE
    for case in cases:
        _check_forward(subject, case, tests)
        if has_gradients(subject, case) and not subject.inplace:
            _check_forward(subject, case.requiring(), _with_gradients(subject, case, tests))
            _check_backward(subject, case)
    return f"{len(cases)} calls, {len(tests)} tests each"


def _with_gradients(subject: Subject, case: Case, tests: tuple[str, ...]) -> tuple[str, ...]:
    """Without the last one if torch itself fails: it adds the sums of all results to the first one's."""
    results = subject.reference(case.values)
    discrete_first = not results[0].is_floating_point() and any(result.is_floating_point() for result in results)
    return tuple(test for test in tests if not discrete_first or test != REPEATABLE[-1])


def _is_finite(subject: Subject, case: Case) -> bool:
    """opcheck's comparison treats NaN as different from NaN."""
    return all(bool(tensor.isfinite().all()) for tensor in [*case.every_tensor(), *subject.reference(case.values)])


def _check_forward(subject: Subject, case: Case, tests: tuple[str, ...]) -> None:
    positional, keyword = subject.signature.arranged(case.values)
    try:
        torch.library.opcheck(subject.overload, tuple(positional), keyword, test_utils=tests)
    except Exception as error:
        names = "".join(f"{argument.name}, " for argument in case.arguments if not argument.keyword_only)
        keywords = ", ".join(f'"{name}": {name}' for name in keyword)
        schema = subject.overload._schema
        overload = f"torch.ops.{schema.name.replace('::', '.')}.{subject.overload._overloadname}"
        line = f"torch.library.opcheck({overload}, ({names}), {{{keywords}}}, test_utils={tests!r})"
        grad = "with gradients, " if case.leaves() else ""
        raise case.failed(f"{grad}{_reason(error)}", [line]) from None


def _check_backward(subject: Subject, case: Case) -> None:
    """The same for the operator that computes the gradient, if opsmith made it."""
    if not isinstance(subject.op, Op) or subject.op._families.default.differentiable.written_gradient is not None:
        return
    operator = subject.op._families.default.backward
    results = listed(subject.inline(case.values))
    grads = [weights_of(result) if result.is_floating_point() else None for result in results]
    needs = [t is not None and t.is_floating_point() for t in subject.signature.flatten(case.values)]
    if subject.signature.returns_list:
        values: tuple[Any, ...] = (grads, *case.values, results, needs)
    else:
        values = (*grads, *case.values, *results, needs)
    try:
        torch.library.opcheck(operator.overload, values)
    except Exception as error:
        raise Failed(f"{case.name}: its backward, {operator.name}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """opcheck's message without its advice."""
    text = str(error.__cause__ or error).strip() or type(error).__name__
    return " ".join(text.split("\n")[:3])[:400]
