"""How far from the truth a number may be: measured for each element, not chosen.

The truth is the reference in float64. An element's unit is one ULP, plus what the element moves by when every input
moves by one ULP: no algorithm can do better, and where terms cancel that is a lot. (An op that is not pointwise may sum
and scale in another order: there, one ULP of the largest element is added, and before the op is reported as wrong, how
far the element moves when all intermediate results are rounded differently.)

The reference itself, run in the op's dtype, has an error of some number of these units. An op's error may be twice as
large, and FULL units in any case (HALF in half types, ONCE where a pointwise kernel rounds its result once); more where
many numbers are summed, since the order is unspecified. The same holds for the SPREAD of errors: the quantiles above
half and a tenth of the elements. Otherwise one element with a large error of the reference would excuse all others. In
float64 the error of the truth is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

FULL, HALF, ONCE = 4.0, 2.0, 1.0
"""The worst of 2^20 elements is off by 2.2 units at most, in results and in first and second gradients of eight shipped
ops in float32; but by hundreds in GELU's tail, where torch's own is (measured)."""
KINK = 4096.0
"""Units above which the reference's error is not rounding: it stepped over a kink, such as relu's at 0. Such an element
may be what the reference gives in either precision."""
SPREAD = (0.5, 0.9, 0.99)
"""The quantiles of errors that are compared. In the same measurement they are 0.14, 0.41 and 0.98 units at most; but
where a call gives all elements one number, they all have its error."""
ROUNDED_TWICE = 1.4
"""Times the error of numbers that are rounded once."""
TAIL = 8
"""The least number of elements beyond a quantile for it to be compared."""
MANY_ULPS = 1e7
"""ULP above which the message gives an absolute distance: near 0 every error is many ULP."""
HALF_TYPES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Comparison:
    """One tensor of the op compared with the reference's. `error` and `allowed` are in units; `ulps` is the op's
    largest error in ULP, `reference_ulps` the reference's where it is known."""

    what: str
    ok: bool
    error: float = 0.0
    allowed: float = 0.0
    message: str = ""
    ulps: float = 0.0
    reference_ulps: float | None = None

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class Expected:
    """What an op's tensor is judged by.

    `own` is the reference's tensor in the op's dtype (half types: computed in float32 and rounded once), `exact` in
    float64, `moved` how far rounding the inputs moves each element. `errors` are the reference's, in units, where they
    do not follow from `own`. `eager` is the reference's largest error if each intermediate is rounded to a half type,
    for an op that does so. `terms` is the largest number of terms in a sum; `once`: the op rounds only its result.
    `nearby` are the reference's largest errors for nearby arguments: an element's error may be twice as large."""

    own: torch.Tensor
    exact: torch.Tensor
    moved: torch.Tensor
    errors: torch.Tensor | None = None
    eager: float = 0.0
    terms: float = 1.0
    once: bool = False
    reference_ulps: float | None = None
    nearby: torch.Tensor | None = None


def ulp(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbouring numbers of a dtype at `exact`."""
    info = torch.finfo(dtype)
    magnitude = exact.abs().nan_to_num(nan=1.0).clamp(min=info.tiny, max=info.max)
    return torch.ldexp(torch.full_like(magnitude, info.eps), torch.frexp(magnitude).exponent - 1)


def surely_right(what: str, mine: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> Comparison | None:
    """What `judge` says of a tensor whose every element is within the ULPs that it allows in any case, without what
    takes long to measure; None for another tensor. `own` and `exact` as in Expected."""
    if not (mine.is_floating_point() and exact.is_floating_point() and mine.shape == own.shape == exact.shape):
        return None
    dtype = mine.dtype
    exact, given = exact.to(torch.float64), mine.to(torch.float64)
    steps = ulp(exact, dtype)
    ulps = (given - exact).abs() / steps
    least = HALF if dtype in HALF_TYPES else FULL
    if not bool((exact.isfinite() & (ulps <= least)).all()):  # NaN is not
        return None
    torchs = None if dtype == torch.float64 else _largest((own.to(dtype).to(torch.float64) - exact).abs() / steps)
    return Comparison(what, True, _largest(ulps), least, "", _largest(ulps), torchs)


def judge(what: str, mine: torch.Tensor, expected: Expected) -> Comparison:
    """Compares the op's tensor with the expected one."""
    if mine.numel() == 0:
        return Comparison(what, True)
    dtype = mine.dtype
    exact = expected.exact.to(torch.float64).flatten()
    given, own = mine.to(torch.float64).flatten(), expected.own.to(dtype).to(torch.float64).flatten()
    steps = ulp(exact, dtype)
    unit = steps + expected.moved.flatten()
    plain = exact.isfinite() & own.isfinite() & exact.to(dtype).isfinite()
    of_own = (own - exact).abs()
    reference_errors = of_own / unit if expected.errors is None else expected.errors.flatten()
    regular = plain & (of_own / unit <= KINK)
    known = reference_errors[regular & (reference_errors <= KINK)]
    measured = _largest(known)
    base = _least(dtype, expected)
    own_error = max(1.0, measured) if dtype == torch.float64 else 0.0
    limits = torch.full_like(unit, max(base, 2 * measured, expected.eager) + own_error)
    if expected.nearby is not None:
        nearby = expected.nearby.flatten().nan_to_num(nan=0.0, posinf=0.0)
        limits, known = torch.maximum(limits, 2 * nearby), nearby[regular]
    # At a kink, and at inf and NaN, an element may be what the reference gives in either precision, or as far off.
    off = _distance(given, exact, dtype)
    nearest = torch.minimum(off, torch.minimum(_distance(given, own, dtype), _distance(given, exact.to(dtype), dtype)))
    nearest = torch.where(plain & (off <= of_own), 0.0, nearest)
    errors = torch.where(regular, off, nearest) / unit
    wrong = errors > limits
    worst = int((errors / limits).argmax())
    error, allowed = float(errors[worst]), float(limits[worst])
    ulps = _largest((off / steps)[regular])
    torchs = _largest((of_own / steps)[regular]) if expected.reference_ulps is None else expected.reference_ulps
    found = Comparison(what, True, error, allowed, "", ulps, None if dtype == torch.float64 else torchs)
    if bool(wrong.any()):
        message = _difference(given[worst], own[worst], exact[worst], plain[worst])
        if plain[worst]:
            away, limit = float(off[worst] / steps[worst]), allowed * float(unit[worst] / steps[worst])
            if limit > MANY_ULPS:
                message += f": off by {float(off[worst]):.3g}, {allowed * float(unit[worst]):.3g} is allowed"
            else:
                message += f": off by {away:.3g} ULP, {limit:.3g} are allowed"
        return replace(found, ok=False, message=f"{message}; {int(wrong.sum())} of {wrong.numel()} elements")
    if expected.eager > max(base, 2 * measured):
        return found
    message = _spread(errors[regular], known, (off / steps)[regular], base, own_error)
    if not message and dtype in HALF_TYPES and expected.once:
        message = _rounded_twice(errors[regular], known)
    return replace(found, ok=not message, message=message)


def _least(dtype: torch.dtype, expected: Expected) -> float:
    """Units that are allowed however accurate the reference is. A sequential sum of n numbers of either sign has a
    typical error of sqrt(n) / 19 units, and of sqrt(n) / 2.5 in the worst of 16384 (measured, n from 2^8 to 2^20)."""
    if dtype in HALF_TYPES:  # summed in float32
        return ONCE if expected.once and not expected.eager else HALF
    return max(FULL, math.sqrt(expected.terms) / 2)


def _spread(errors: torch.Tensor, known: torch.Tensor, ulps: torch.Tensor, base: float, own_error: float) -> str:
    """The fault in the distribution of errors; empty if there is none."""
    for quantile in SPREAD:
        if errors.numel() * (1 - quantile) < TAIL:
            break
        # The reference's quantile is taken a little farther out, since it varies too.
        reference = float(_quantile(known, (1 + quantile) / 2)) if known.numel() else 0.0
        limit = max(base, 2 * reference) + own_error
        found = float(_quantile(errors, quantile))
        if found > limit:
            many = "half" if quantile == 0.5 else f"{1 - quantile:.0%}"
            away = float(_quantile(ulps, quantile))
            rounding = f"{found:.3g} times what rounding gives, {limit:.3g} is allowed"
            return f"{many} of the elements are off by {away:.3g} ULP and more: {rounding}"
    return ""


def _rounded_twice(errors: torch.Tensor, known: torch.Tensor) -> str:
    """The error of a number that is rounded once is uniform up to half a unit: 0.45 at the 90% quantile. With an
    intermediate rounded as well, it is 0.72 there for x * sigmoid(x) (measured)."""
    if errors.numel() < 10 * TAIL:
        return ""
    found, limit = float(_quantile(errors, 0.9)), max(ONCE / 4, ROUNDED_TWICE * float(_quantile(known, 0.9)))
    if found <= limit:
        return ""
    return f"10% of the elements are off by {found:.3g} ULP and more, {limit:.3g} is allowed: rounded more than once"


def _quantile(values: torch.Tensor, quantile: float) -> torch.Tensor:
    """torch.quantile, for any number of elements."""
    return values.kthvalue(min(values.numel(), 1 + int(quantile * values.numel()))).values


def units_of_error(inexact: torch.Tensor, exact: torch.Tensor, moved: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The error of each element of a tensor computed in `dtype`."""
    exact = exact.to(torch.float64)
    return (inexact.to(torch.float64) - exact).abs() / (ulp(exact, dtype) + moved)


def largest_regular(errors: torch.Tensor) -> float:
    """The largest error, apart from kinks and elements that are not finite."""
    return _largest(errors[errors.isfinite() & (errors <= KINK)])


def _distance(given: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """How far apart; NaN is infinitely far from a number. At the end of a dtype's range, which may be rounded either
    way, infinity counts as the next number."""
    wanted = wanted.to(torch.float64)
    info = torch.finfo(dtype)
    beyond = info.max * (1 + info.eps / 2) if dtype != torch.float64 else math.inf
    near_end = wanted.abs() >= info.max * (1 - 4 * info.eps)
    given = torch.where(given.isinf() & near_end & wanted.isfinite(), given.sign() * beyond, given)
    apart = (given - wanted).abs().nan_to_num(nan=torch.inf)
    same = (given == wanted) | (given.isnan() & wanted.isnan())
    return torch.where(same, 0.0, apart)


def _difference(given: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, plain: torch.Tensor) -> str:
    if not plain:
        return f"inf or NaN in other places: {float(given):.9g} where the reference gives {float(own):.9g}"
    return f"{float(given):.9g} where {float(exact):.9g} is right"


def _largest(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0
