"""How far from the truth a number may lie: measured for each element, not chosen.

The truth is the reference in float64. An element's unit is one unit in its last place, and what the element moves by
when every input moves by one in its own last place: no algorithm can be held to less, and where terms cancel that is
much. (An op that is not pointwise may sum and scale in another order: there it is a unit of the largest one besides.)
In these units the reference itself, run in the op's dtype, errs by some number: an op may err by twice as much, and by
FULL (HALF: in half types) units in any case. In float64 the truth has an error of its own, which comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

FULL, HALF = 4.0, 2.0
LUCKLESS = 4096.0
"""Units beyond which the reference's error is no rounding: it stepped over a kink, as relu's at 0. Such an element may
be what the reference gives in either precision."""
HALF_TYPES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Judgement:
    """`error` and `allowed` are in units, `ulps` is the largest error in units of the last place alone."""

    ok: bool
    error: float = 0.0
    allowed: float = 0.0
    ulps: float = 0.0
    message: str = ""


def ulp(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance of neighbouring numbers of a dtype where `exact` lies."""
    info = torch.finfo(dtype)
    magnitude = exact.abs().clamp(min=info.tiny, max=info.max)
    return torch.ldexp(torch.full_like(magnitude, info.eps), torch.frexp(magnitude).exponent - 1)


def judge(
    mine: torch.Tensor,
    theirs: torch.Tensor,
    exact: torch.Tensor,
    moved: torch.Tensor,
    own_units: float | None = None,
    eager_units: float = 0.0,
) -> Judgement:
    """The op's tensor beside the reference's in the same dtype and in float64, and what a rounding of the inputs moves
    it by. `own_units`: the reference's error, where `theirs` does not tell it. `eager_units`: its error where it rounds
    each intermediate to a half type, as torch does; nobody has to be better than that."""
    if mine.numel() == 0:
        return Judgement(True)
    exact = exact.to(torch.float64)
    given, own = mine.to(torch.float64), theirs.to(mine.dtype).to(torch.float64)
    finite = exact.isfinite() & own.isfinite() & moved.isfinite()
    if not _same_specials(given[~finite], own[~finite]):
        return Judgement(False, float("inf"), 0.0, float("inf"), _special_words(given, own, finite))
    given, own, exact, moved = given[finite], own[finite], exact[finite], moved[finite]
    if exact.numel() == 0:
        return Judgement(True)
    steps = ulp(exact, mine.dtype)
    unit = steps + moved
    reference_errors = (own - exact).abs() / unit
    regular = reference_errors <= LUCKLESS
    measured = _largest(reference_errors[regular]) if own_units is None else own_units
    allowed = max(HALF if mine.dtype in HALF_TYPES else FULL, 2 * measured, eager_units)
    if mine.dtype == torch.float64:
        allowed += max(1.0, measured)
    # NaN is farther off than anything.
    off = (given - exact).abs().nan_to_num(nan=torch.inf)
    errors = torch.where(regular, off, torch.minimum(off, (given - own).abs().nan_to_num(nan=torch.inf))) / unit
    worst = int(errors.argmax())
    error, ulps = float(errors[worst]), _largest(torch.where(regular, off / steps, 0.0))
    if error <= allowed:
        return Judgement(True, error, allowed, ulps)
    away, limit = float(off[worst] / steps[worst]), allowed * float(unit[worst] / steps[worst])
    message = (
        f"{float(given[worst]):.9g} where {float(exact[worst]):.9g} is right: off by {away:.3g} ULP, {limit:.3g} are "
        f"allowed; {int((errors > allowed).sum())} of {errors.numel()} elements"
    )
    return Judgement(False, error, allowed, ulps, message)


def units_of_error(inexact: torch.Tensor, exact: torch.Tensor, moved: torch.Tensor, dtype: torch.dtype) -> float:
    """The largest error of a tensor computed in `dtype`, kinks aside."""
    exact = exact.to(torch.float64)
    difference = (inexact.to(torch.float64) - exact).abs() / (ulp(exact, dtype) + moved)
    difference = difference[difference.isfinite()]
    return _largest(difference[difference <= LUCKLESS])


def _same_specials(given: torch.Tensor, own: torch.Tensor) -> bool:
    nans = torch.equal(given.isnan(), own.isnan())
    return nans and torch.equal(given.nan_to_num(nan=0.0, posinf=1.0, neginf=-1.0).sign() * given.isinf(),
                                own.nan_to_num(nan=0.0, posinf=1.0, neginf=-1.0).sign() * own.isinf())  # fmt: skip


def _special_words(given: torch.Tensor, own: torch.Tensor, finite: torch.Tensor) -> str:
    for mine, theirs in zip(given[~finite].tolist(), own[~finite].tolist(), strict=True):
        if mine != theirs and not (mine != mine and theirs != theirs):
            return f"inf or NaN in other places: {mine} where the reference gives {theirs}"
    return "inf or NaN in other places"


def _largest(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0
