"""The functions of the CUDA headers, compiled for the CPU: values and special points against torch."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opsmith.generate.text import HALF, SCALAR_TYPES

from . import host_cuda

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


UNARY = [
    "floor", "ceil", "trunc", "round", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt",
    "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
    "erfc", "erfinv", "sigmoid", "sign", "absolute", "lgamma",
]  # fmt: skip
ACTIVATIONS = ["sigmoid", "softplus", "tanh_softplus", "normal_cdf", "normal_pdf", "exp", "tanh"]
QUESTIONS = ["is_nan", "is_inf", "is_finite", "sign_bit"]
COMPARISONS = ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]
FLOAT_BINARY = [
    "atan2", "pow", "hypot", "copysign", "fmin", "fmax", "minimum", "maximum", "fmod", "floor_divide", "trunc_divide",
    "remainder", "logaddexp", "logaddexp2", "xlogy",
]  # fmt: skip
INTEGER_BINARY = [
    "minimum", "maximum", "floor_divide", "trunc_divide", "remainder", "fmod", "shift_left", "shift_right", "pow",
]  # fmt: skip


def _expressions(dtype: torch.dtype) -> list[tuple[str, str]]:
    """(expression, type of its value) of everything that is tried on elements a and b of a dtype: one library each."""
    own = SCALAR_TYPES[dtype]
    table = [
        (f"cast<{SCALAR_TYPES[target]}>(a)", SCALAR_TYPES[target]) for target in SCALAR_TYPES if target not in HALF
    ]
    if dtype in HALF:
        return [("widen(a)", "float")]
    if dtype is torch.bool:
        truth = ["logical_and(a, b)", "logical_or(a, b)", "logical_xor(a, b)", "logical_not(a)", "select(a, b, !b)"]
        return table + [(expression, own) for expression in truth]
    table += [(f"{name}(a, b)", "bool") for name in COMPARISONS]
    if not dtype.is_floating_point:
        return (
            table
            + [(f"{name}(a, b)", own) for name in INTEGER_BINARY]
            + [(f"{name}(a)", own) for name in ("sign", "absolute")]
        )
    table += [(f"{name}(a)", own) for name in dict.fromkeys([*UNARY, *ACTIVATIONS, "sinc"])]
    table += [(f"{name}(a, b)", own) for name in FLOAT_BINARY] + [(f"{name}(a)", "bool") for name in QUESTIONS]
    table += [(f"a * infinity<{own}>()", own), (f"a * not_a_number<{own}>()", own)]
    if dtype is torch.float32:
        for half in ("float16", "bfloat16"):
            table.append((f"round_to_{half}(a)", own))
            table.append((f"{half}_pair(a, b) == ({half}_bits(a) | uint32_t({half}_bits(b)) << 16)", "bool"))
    return table


@functools.cache
def _library(dtype: torch.dtype, fast: bool) -> Any:
    own = SCALAR_TYPES[dtype]
    loops = "".join(
        f"""
extern "C" __attribute__((visibility("default")))
void loop_{place}(const {own}* first, const {own}* second, {value}* output, long count) {{
  for (long i = 0; i < count; ++i) {{
    const {own} a = first[i];
    const {own} b = second[i];
    (void)b;
    output[i] = {expression};
  }}
}}
"""
        for place, (expression, value) in enumerate(_expressions(dtype))
    )
    define = "#define OPSMITH_FAST_MATH" if fast else ""
    return host_cuda.library(
        f"""#include <cuda_on_host.h>
{define}
#include <opsmith/pointwise/cuda.h>
namespace opsmith {{
{loops}
}}
""",
        "functions",
    )


def compute(
    expression: str,
    a: torch.Tensor,
    b: torch.Tensor | None = None,
    result: torch.dtype | None = None,
    fast: bool = False,
) -> torch.Tensor:
    """`expression` of the elements a and b."""
    a = a.contiguous()
    b = a if b is None else b.contiguous()
    output = torch.empty(a.shape, dtype=result or a.dtype)
    place = _expressions(a.dtype).index((expression, SCALAR_TYPES[output.dtype]))
    loop = getattr(_library(a.dtype, fast), f"loop_{place}")
    loop(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, output)), ctypes.c_long(output.numel()))
    return output


def points(dtype: torch.dtype) -> torch.Tensor:
    """Ordinary and special ones."""
    limits = torch.finfo(dtype)
    special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 2.5, -2.5, 3.5, 20.0, 20.5, 88.0, 100.0, -88.0, -100.0, 1e4, -1e4,
               math.inf, -math.inf, math.nan, limits.max, -limits.max, limits.tiny, -limits.tiny, limits.tiny / 8,
               limits.eps, math.pi, 1e-5, -1e-5]  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    ordinary = torch.randn(400, generator=generator, dtype=torch.float64) * 4
    unit = torch.rand(200, generator=generator, dtype=torch.float64) * 2 - 1
    return torch.cat([torch.tensor(special, dtype=torch.float64), ordinary, unit]).to(dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    x = points(dtype)
    special = x[:30]
    grid = torch.cartesian_prod(special, special)
    return torch.cat([x, grid[:, 0]]), torch.cat([x.flip(0), grid[:, 1]])


def close(result: torch.Tensor, exact: torch.Tensor, units: float) -> None:
    """Within so many units in the last place, infinities, NaN and the signs of zeros alike."""
    rounded = exact.to(result.dtype)
    limits = torch.finfo(result.dtype)
    distance = units * (rounded.abs() * limits.eps).clamp_min(limits.tiny * limits.eps)
    settled = ~rounded.isfinite()
    right = torch.where(rounded.isnan(), result.isnan(), result == rounded)
    near = torch.where(settled, right, (result.double() - exact.double()).abs() <= distance.double())
    zeros = (rounded == 0) & (exact == 0)
    near &= ~zeros | (result.signbit() == rounded.signbit())
    assert near.all(), [(a.item(), b.item()) for a, b in zip(result[~near][:5], rounded[~near][:5], strict=True)]


FLOATS = [torch.float32, torch.float64]

UNITS = {
    "lgamma": 8,
    "erfinv": 4,
    "rsqrt": 2,
    "sigmoid": 3,
    "tanh_softplus": 4,
    "normal_cdf": 4,
    "normal_pdf": 4,
    "softplus": 3,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_a_function_has_torchs_values(name: str, dtype: torch.dtype) -> None:
    x = points(dtype)
    if name in ("sin", "cos", "tan"):
        x = x[x.abs() < 1e6]  # torch's own vector code and libm's part ways beyond
    if name == "sigmoid":
        x = x[~(x < -87)]  # 1 / (1 + exp(-x)) is all that torch itself has there: zero
    close(compute(f"{name}(a)", x), getattr(torch, name)(x.double()), UNITS.get(name, 2))


def exactly(name: str, x: torch.Tensor) -> torch.Tensor:
    """An activation in double."""
    x = x.double()
    match name:
        case "tanh_softplus":
            e = x.clamp_max(30).exp()
            return torch.where(x > 20, torch.ones_like(x), e * (e + 2) / (e * (e + 2) + 2))
        case "normal_pdf":
            return torch.exp(-0.5 * x.clamp(-1e3, 1e3) ** 2) / math.sqrt(2 * math.pi)
        case "normal_cdf":
            return 0.5 * torch.erfc(-x / math.sqrt(2))
        case "softplus":
            return torch.logaddexp(x, torch.zeros_like(x))
    return getattr(torch, name)(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normal_cdf_is_as_exact_as_one_plus_erf(dtype: torch.dtype) -> None:
    x = points(dtype)
    x = x[~x.isnan()]
    error = (compute("normal_cdf(a)", x).double() - exactly("normal_cdf", x).double()).abs()
    assert error.max() <= 2 * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", ["softplus", "tanh_softplus", "normal_pdf"])
def test_an_activation_is_exact_to_a_few_units(name: str) -> None:
    for dtype in FLOATS:
        x = points(dtype)
        exact = exactly(name, x)
        if dtype is torch.float64:  # the reference is not better than the result
            x, exact = x[x.abs() < 6], exact[x.abs() < 6]
        close(compute(f"{name}(a)", x), exact, UNITS[name] if dtype is torch.float32 else 64)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_fast_form_has_a_relative_error_that_half_types_do_not_show(name: str) -> None:
    x = torch.cat(
        [
            torch.linspace(-12, 12, 4001),
            points(torch.float32),
            torch.logspace(-30, 1, 300),
            -torch.logspace(-30, 1, 300),
        ]
    )
    x = x[~(x.isfinite() & (x.abs() > 88))]
    result, exact = compute(f"{name}(a)", x, fast=True), exactly(name, x)
    settled = ~exact.isfinite() | (exact.abs() < 1.2e-38)
    error = (result.double() - exact).abs() / exact.abs().clamp_min(1e-300)
    assert error[~settled].max() < 2**-17
    special = settled & ~exact.isfinite()
    assert torch.equal(result[special].isnan(), exact[special].isnan())
    finite = special & ~exact.isnan()
    assert torch.equal(result[finite].double(), exact[finite])
    assert (result[settled & exact.isfinite()].abs() < 1.3e-38).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("name", "units"),
    [("atan2", 2), ("pow", 2), ("hypot", 2), ("copysign", 0), ("fmin", 0), ("fmax", 0), ("minimum", 0), ("maximum", 0)],
)
def test_a_function_of_two_has_torchs_values(name: str, units: float, dtype: torch.dtype) -> None:
    a, b = pairs(dtype)
    result, expected = compute(f"{name}(a, b)", a, b), getattr(torch, name)(a.double(), b.double())
    if name in ("fmin", "fmax", "minimum", "maximum"):
        ties = (a == 0) & (b == 0)  # either zero will do
        result, expected = result[~ties], expected[~ties]
    if name == "hypot":
        infinite = a.isinf() | b.isinf()
        result, expected = result[~infinite], expected[~infinite]
    close(result, expected, units)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_remainders_are_exact(dtype: torch.dtype) -> None:
    a, b = pairs(dtype)
    fine = a.isfinite() & (b != 0)  # torch's own vector code gives NaN for large quotients, so C's is asked
    a, b = a[fine].contiguous(), b[fine].contiguous()
    rests = [math.fmod(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    close(compute("fmod(a, b)", a, b), torch.tensor(rests, dtype=torch.float64), 0)
    signed = [r + y if r != 0 and (y < 0) != (r < 0) else r for r, y in zip(rests, b.tolist(), strict=True)]
    close(compute("remainder(a, b)", a, b), torch.tensor(signed, dtype=torch.float64), 1)
    nothing = compute("remainder(a, b)", a, torch.zeros_like(a))
    assert nothing.isnan().all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("floor_divide", lambda a, b: torch.div(a, b, rounding_mode="floor")),
        ("trunc_divide", lambda a, b: torch.div(a, b, rounding_mode="trunc")),
        ("xlogy", torch.xlogy),
    ],
)
def test_a_composite_of_two_is_torchs(name: str, function: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    a, b = pairs(dtype)
    close(compute(f"{name}(a, b)", a, b), function(a, b), 4)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_a_sum_of_exponentials_is_torchs(name: str, dtype: torch.dtype) -> None:
    a, b = pairs(dtype)
    result, expected = compute(f"{name}(a, b)", a, b), getattr(torch, name)(a, b)
    epsilon = torch.finfo(dtype).eps  # terms of about one cancel
    torch.testing.assert_close(result, expected, rtol=2 * epsilon, atol=4 * epsilon, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sinc_is_torchs(dtype: torch.dtype) -> None:
    x = points(dtype)
    x = x[~(x.abs() > 30)]
    result, expected = compute("sinc(a)", x), torch.sinc(x)
    assert torch.allclose(result, expected, rtol=1e-6, atol=4 * torch.finfo(dtype).eps, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("name", "function"),
    [("is_nan", torch.isnan), ("is_inf", torch.isinf), ("is_finite", torch.isfinite), ("sign_bit", torch.signbit)],
)
def test_a_question_has_torchs_answer(name: str, function: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    x = points(dtype)
    assert torch.equal(compute(f"{name}(a)", x, result=torch.bool), function(x))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("name", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
def test_a_comparison_has_torchs_answer(name: str, dtype: torch.dtype) -> None:
    a, b = pairs(dtype) if dtype.is_floating_point else (torch.arange(50).to(dtype), torch.arange(49, -1, -1).to(dtype))
    expected = {"equal": torch.eq}.get(name) or getattr(torch, name)
    assert torch.equal(compute(f"{name}(a, b)", a, b, result=torch.bool), expected(a, b))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("minimum", torch.minimum),
        ("maximum", torch.maximum),
        ("floor_divide", torch.floor_divide),
        ("trunc_divide", lambda a, b: torch.div(a, b, rounding_mode="trunc")),
        ("remainder", torch.remainder),
        ("fmod", torch.fmod),
        ("shift_left", torch.bitwise_left_shift),
        ("shift_right", torch.bitwise_right_shift),
        ("pow", lambda a, b: a**b),
    ],
)
def test_a_function_of_integers_is_torchs(name: str, function: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    values = [limits.min, limits.max, limits.max - 1, 0, 1, 2, 3, 5, 7, 31, 63, 100]
    values += [-1, -2, -3, -7] if limits.min < 0 else []
    a, b = torch.cartesian_prod(*[torch.tensor(values, dtype=dtype)] * 2).unbind(1)
    if name in ("floor_divide", "trunc_divide", "remainder", "fmod"):
        fine = (b != 0) & ~((a == limits.min) & (b == -1))
        a, b = a[fine], b[fine]
    a, b = a.contiguous(), b.contiguous()
    assert torch.equal(compute(f"{name}(a, b)", a, b), function(a, b))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", ["sign", "absolute"])
def test_a_function_of_an_integer_is_torchs(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(-100 if dtype is not torch.uint8 else 0, 100).to(dtype)
    assert torch.equal(compute(f"{name}(a)", x), getattr(torch, name)(x))


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, torch.bool], ids=str)
@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_a_cast_is_torchs(source: torch.dtype, target: torch.dtype) -> None:
    x = torch.tensor([0.0, 1.0, -1.0, 0.5, -0.5, 2.7, -2.7, 100.9, 127.0]).to(source)
    if source.is_floating_point and target in FLOATS:
        x = torch.cat([x, points(source)])
    expected = x.to(target)
    result = compute(f"cast<{SCALAR_TYPES[target]}>(a)", x, result=target)
    assert torch.equal(result.nan_to_num(3.0), expected.nan_to_num(3.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_half_type_is_widened_and_rounded_to_the_bit(dtype: torch.dtype) -> None:
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    wide = compute("widen(a)", every, result=torch.float32)
    assert torch.equal(wide.nan_to_num(3.0), every.float().nan_to_num(3.0))
    # Between every two neighbours: the middle, where ties go to even, and what lies just beside it.
    ordered = wide[wide.isfinite()].sort().values
    middle = (ordered[1:].double() + ordered[:-1].double()).div(2).float()
    up, down = torch.full_like(middle, math.inf), torch.full_like(middle, -math.inf)
    x = torch.cat([wide, middle, torch.nextafter(middle, up), torch.nextafter(middle, down), points(torch.float32),
                   torch.tensor([65519.9, 65520.0, 3.4e38, -3.4e38])])  # fmt: skip
    name = SCALAR_TYPES[dtype]
    rounded = compute(f"round_to_{name}(a)", x)
    assert torch.equal(rounded.nan_to_num(3.0), x.to(dtype).float().nan_to_num(3.0))
    assert torch.equal(rounded.isnan(), x.isnan())
    pairwise = f"{name}_pair(a, b) == ({name}_bits(a) | uint32_t({name}_bits(b)) << 16)"
    assert compute(pairwise, x, x.flip(0), result=torch.bool).all()


def test_infinity_and_not_a_number() -> None:
    for dtype in FLOATS:
        kind = SCALAR_TYPES[dtype]
        assert compute(f"a * infinity<{kind}>()", torch.ones(1, dtype=dtype)).item() == math.inf
        assert math.isnan(compute(f"a * not_a_number<{kind}>()", torch.ones(1, dtype=dtype)).item())


def test_truth() -> None:
    a, b = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    checks = [
        ("logical_and(a, b)", a & b), ("logical_or(a, b)", a | b), ("logical_xor(a, b)", a ^ b), ("logical_not(a)", ~a),
        ("select(a, b, !b)", torch.where(a, b, ~b)),
    ]  # fmt: skip
    for expression, expected in checks:
        assert torch.equal(compute(expression, a, b), expected)
