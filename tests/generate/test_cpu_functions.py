"""The functions of cpu.h: as near to the true value as torch's own, right at special points, on vectors and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch

from opsmith.generate import emit_cpp
from opsmith.generate.expression import Program
from opsmith.generate.functions import Function
from opsmith.launch.planner import LayoutClass

from . import programs
from .host_cpp import Kernels, Launch, functions
from .test_emit_cpp import NATIVE, PROCESSORS

mp = mpmath.mp.clone()
mp.prec = 240
# (the true function, where it is asked for, ulp that it may be off)
Domain = Callable[[torch.Tensor], torch.Tensor]


def everywhere(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x, dtype=torch.bool)


def inside(low: float, high: float) -> Domain:
    return lambda x: (x >= low) & (x <= high)


positive = inside(1e-320, math.inf)
moderate = inside(-1e5, 1e5)  # what is beyond overflows or is constant; mpmath takes its time there
FLOATS: dict[str, tuple[Callable[[Any], Any], Domain, float]] = {
    "exp": (mp.exp, moderate, 1.1),
    "exp2": (lambda x: mp.mpf(2) ** x, moderate, 1.1),
    "expm1": (mp.expm1, moderate, 1.1),
    "log": (mp.log, positive, 1.1),
    "log2": (lambda x: mp.log(x, 2), positive, 1.1),
    "log10": (mp.log10, positive, 2),
    "log1p": (mp.log1p, inside(-0.99999, math.inf), 1.1),
    "sqrt": (mp.sqrt, positive, 0.51),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), positive, 1.6),
    "reciprocal": (lambda x: 1 / x, lambda x: x != 0, 0.51),
    "sin": (mp.sin, everywhere, 1.1),
    "cos": (mp.cos, everywhere, 1.1),
    "tan": (mp.tan, everywhere, 1.1),
    "asin": (mp.asin, inside(-1, 1), 1.1),
    "acos": (mp.acos, inside(-1, 1), 1.1),
    "atan": (mp.atan, everywhere, 1.1),
    "sinh": (mp.sinh, moderate, 1.6),
    "cosh": (mp.cosh, moderate, 1.6),
    "tanh": (mp.tanh, moderate, 1.6),
    "asinh": (mp.asinh, everywhere, 1.6),
    "acosh": (mp.acosh, inside(1, math.inf), 1.6),
    "atanh": (mp.atanh, inside(-0.99999, 0.99999), 1.6),
    "erf": (mp.erf, moderate, 1.6),
    "erfc": (mp.erfc, moderate, 1.6),
    "erfinv": (mp.erfinv, inside(-0.9999999, 0.9999999), 3),
    "sigmoid": (lambda x: 1 / (1 + mp.exp(-x)), moderate, 2.5),
    "softplus": (lambda x: mp.log1p(mp.exp(x)), inside(-1e5, 1e3), 2.5),
    "tanh_softplus": (lambda x: mp.tanh(mp.log1p(mp.exp(x))), inside(-1e3, 1e3), 3),
    "normal_cdf": (lambda x: mp.erfc(-x / mp.sqrt(2)) / 2, inside(-1, 30), 4),
    "normal_pdf": (lambda x: mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi), inside(-5, 5), 16),
    "sinc": (lambda x: mp.sinc(mp.pi * x), inside(-0.7, 0.7), 4),
    "lgamma": (mp.loggamma, inside(2.5, 1e15), 1.6),
}
TWO_FLOATS: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "pow": (lambda x, y: mp.power(abs(x), y), 1.1),
    "atan2": (mp.atan2, 1.1),
    "hypot": (mp.hypot, 1.1),
    "logaddexp": (lambda x, y: mp.log(mp.exp(x) + mp.exp(y)), 4),
    "logaddexp2": (lambda x, y: mp.log(mp.mpf(2) ** x + mp.mpf(2) ** y, 2), 5),
}
# What torch computes exactly or by this very formula: equal to it, bit for bit.
SAME_AS_TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc, "round": torch.round, "absolute": torch.abs,
    "sign": torch.sign,
}  # fmt: skip
TWO_SAME_AS_TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "minimum": torch.minimum, "maximum": torch.maximum, "fmin": torch.fmin, "fmax": torch.fmax,
    "copysign": torch.copysign, "remainder": torch.remainder, "fmod": torch.fmod,
    "floor_divide": torch.floor_divide, "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}  # fmt: skip
INTEGERS: dict[str, Callable[..., torch.Tensor]] = {
    "minimum": torch.minimum, "maximum": torch.maximum, "floor_divide": torch.floor_divide,
    "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"), "remainder": torch.remainder,
    "fmod": torch.fmod, "shift_left": torch.bitwise_left_shift, "shift_right": torch.bitwise_right_shift,
    "pow": torch.pow,
}  # fmt: skip
TESTS: dict[str, Callable[..., torch.Tensor]] = {
    "is_nan": torch.isnan, "is_inf": torch.isinf, "is_finite": torch.isfinite, "sign_bit": torch.signbit
}  # fmt: skip
COMPARISONS: dict[str, Callable[..., torch.Tensor]] = {
    "less": torch.lt, "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge, "equal": torch.eq,
    "not_equal": torch.ne,
}  # fmt: skip
LOGICAL: dict[str, Callable[..., torch.Tensor]] = {
    "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor
}  # fmt: skip

FLOAT_TYPES = [torch.float32, torch.float64]
INTEGER_TYPES = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
ALL_TYPES = [*FLOAT_TYPES, torch.float16, torch.bfloat16, *INTEGER_TYPES, torch.bool]
VECTORS = [NATIVE, *PROCESSORS[:-1], f"{NATIVE} without Sleef"]

Kernel = tuple[Program, LayoutClass]


def of_one(dtype: torch.dtype) -> Kernel:
    return functions([*FLOATS, *SAME_AS_TORCH], [dtype], dtype)


def of_two(dtype: torch.dtype) -> Kernel:
    return functions([*TWO_FLOATS, *TWO_SAME_AS_TORCH, "xlogy"], [dtype, dtype], dtype)


def questions_of(dtype: torch.dtype) -> Kernel:
    return functions([*TESTS], [dtype], torch.bool)


def comparisons_of(dtype: torch.dtype) -> Kernel:
    return functions([*COMPARISONS], [dtype, dtype], torch.bool)


def of_integer(dtype: torch.dtype) -> Kernel:
    return functions(["absolute", "sign"], [dtype], dtype)


def of_integers(dtype: torch.dtype) -> Kernel:
    return functions([*INTEGERS], [dtype, dtype], dtype)


LOGIC = functions([*LOGICAL], [torch.bool] * 2, torch.bool)
NOT = functions(["logical_not"], [torch.bool], torch.bool)
COMPARED = [torch.float32, torch.float64, torch.int8, torch.uint8, torch.int64, torch.bool]


def all_functions() -> list[Kernel]:
    kernels = [make(dtype) for dtype in FLOAT_TYPES for make in (of_one, of_two, questions_of)]
    kernels += [make(dtype) for dtype in INTEGER_TYPES for make in (of_integer, of_integers)]
    return [*kernels, *map(comparisons_of, COMPARED), LOGIC, NOT]


@pytest.fixture(scope="module", params=VECTORS)
def kernels(request: pytest.FixtureRequest) -> Any:
    """Every function, with the vectors of each processor that this one can stand in for; and without Sleef."""
    with pytest.MonkeyPatch.context() as patch:
        processor, *without = request.param.split(" without ")
        patch.setattr(emit_cpp, "capability", lambda: processor)
        if without:
            patch.setattr(emit_cpp, "has_sleef", lambda: False)
        yield Kernels(all_functions())


def points(dtype: torch.dtype) -> torch.Tensor:
    """Ordinary numbers of every size, and where functions end or overflow."""
    limits = torch.finfo(dtype)
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(8, 12, generator=generator, dtype=torch.float64)
    random *= torch.tensor([1e-30, 1e-3, 0.3, 1, 5, 30, 300, 1e5], dtype=torch.float64)[:, None]
    edges = [
        0.5, 1.0, 1 - limits.eps, 1 + limits.eps, 0.9999, 1.5707964, math.pi, 20.0, 22.0, 39000.0, 1e7, 1e15, 1e20,
        1e30, 88.5, 88.9, 89.2, 87.5, 95.0, 103.0, 104.0, 127.9, 126.5, 140.0, 149.0, 709.5, 710.2, 720.0, 744.0, 746.0,
        limits.max, limits.max / 3, limits.tiny, limits.tiny / 8, limits.tiny * limits.eps,
    ]  # fmt: skip
    both = torch.tensor(edges, dtype=torch.float64)
    return torch.cat([random.flatten(), both, -both, torch.linspace(-1, 1, 33, dtype=torch.float64)]).to(dtype)


def assert_within(found: torch.Tensor, true: list[Any], ulp: float, inputs: list[list[float]], what: str) -> None:
    limits = torch.finfo(found.dtype)
    digits = {torch.float32: 23, torch.float64: 52}[found.dtype]
    for value, right, *at in zip(found.tolist(), true, *inputs, strict=True):
        if not isinstance(right, mp.mpf):
            continue
        if abs(right) > mp.mpf(limits.max) * (1 + mp.mpf(limits.eps) / 4):
            assert math.isinf(value) and (value > 0) == (right > 0), f"{what}{at}: {value}, overflows"
            continue
        exponent = mp.floor(mp.log(abs(right), 2)) if right else -2000
        unit = mp.mpf(2) ** max(exponent - digits, int(math.log2(limits.tiny)) - digits)
        near_the_end = abs(right) > limits.max * (1 - 4 * limits.eps) and math.isinf(value)
        error = 0 if near_the_end else abs(mp.mpf(value) - right) / unit
        assert error <= ulp, f"{what}{at}: {value}, {float(error):.2f} ulp from {mp.nstr(right, 20)}"


def truth(function: Callable[..., Any], *at: float) -> Any:
    try:
        return function(*map(mp.mpf, at))
    except (ValueError, ZeroDivisionError):
        return None


_truths: dict[Any, list[Any]] = {}  # the same for all processors


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
@pytest.mark.parametrize("name", FLOATS)
def test_functions_are_near_the_true_value(kernels: Kernels, name: str, dtype: torch.dtype) -> None:
    function, domain, ulp = FLOATS[name]
    x = points(dtype)
    x = x[domain(x)]
    key = (name, dtype)
    if key not in _truths:
        _truths[key] = [truth(function, each) for each in x.tolist()]
    found = kernels.elementwise(of_one(dtype), x)[name]
    assert_within(found, _truths[key], ulp, [x.tolist()], name)


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
@pytest.mark.parametrize("name", TWO_FLOATS)
def test_functions_of_two_are_near_the_true_value(kernels: Kernels, name: str, dtype: torch.dtype) -> None:
    function, ulp = TWO_FLOATS[name]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(150, generator=generator, dtype=torch.float64) * 4
    y = torch.randn(150, generator=generator, dtype=torch.float64) * 4
    if name in ("pow", "logaddexp", "logaddexp2"):  # of positive numbers, whose sum does not cancel
        x, y = x.abs(), y.abs() if name != "pow" else y * 10
    x, y = x.to(dtype), y.to(dtype)
    found = kernels.elementwise(of_two(dtype), x, y)[name]
    true = [truth(function, *each) for each in zip(x.tolist(), y.tolist(), strict=True)]
    assert_within(found, true, ulp, [x.tolist(), y.tolist()], name)


SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1.0,
    -1.0,
    2.0,
    -2.0,
    0.5,
    -0.5,
    2.5,
    -1.5,
    3.0,
    -3.0,
    1e30,
    -1e30,
    1e-30,
]


def assert_same(found: torch.Tensor, expected: torch.Tensor, inputs: list[torch.Tensor], *, exactly: bool) -> None:
    """The same zeros, infinities and NaN; the same bits where torch has computed exactly."""
    same = (found == expected) & (found.signbit() == expected.signbit()) | (found.isnan() & expected.isnan())
    if not exactly:
        same |= expected.isfinite() & (expected != 0) & torch.isclose(found, expected, rtol=1e-5, atol=1e-16)
    wrong = (~same).nonzero().flatten()
    assert len(wrong) == 0, [tuple(t[i].item() for t in (*inputs, found, expected)) for i in wrong[:5].tolist()]


OF_TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "absolute": torch.abs, "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)), "lgamma": torch.lgamma,
    "tanh_softplus": lambda x: torch.tanh(torch.logaddexp(x, torch.zeros_like(x))), "normal_cdf": torch.special.ndtr,
    "normal_pdf": lambda x: torch.exp(-x * x / 2) / math.sqrt(2 * math.pi),
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
@pytest.mark.parametrize("name", [*FLOATS, *SAME_AS_TORCH])
def test_functions_are_torchs_at_special_points(kernels: Kernels, name: str, dtype: torch.dtype) -> None:
    function = OF_TORCH[name] if name in OF_TORCH else getattr(torch, name)
    x = torch.tensor(SPECIAL, dtype=dtype)
    if name == "normal_cdf":
        x = x[x.isnan() | (x > -3)]  # torch's has another formula below
    # One by one in double: torch's own vector kernels are not right at every special point. sinc is not zero at whole
    # numbers, for pi is rounded.
    expected = torch.stack([function(each) for each in (x if name == "sinc" else x.double())]).to(dtype)
    found = kernels.elementwise(of_one(dtype), x)[name]
    assert_same(found, expected, [x], exactly=name in SAME_AS_TORCH)


@pytest.mark.parametrize("dtype", FLOAT_TYPES, ids=str)
@pytest.mark.parametrize("name", [*TWO_FLOATS, *TWO_SAME_AS_TORCH, "xlogy"])
def test_functions_of_two_are_torchs_at_special_points(kernels: Kernels, name: str, dtype: torch.dtype) -> None:
    function = TWO_SAME_AS_TORCH.get(name) or getattr(torch, name, None) or getattr(torch.special, name)
    exactly = name in TWO_SAME_AS_TORCH
    x, y = (each.flatten() for each in torch.meshgrid(*[torch.tensor(SPECIAL, dtype=dtype)] * 2, indexing="ij"))
    wide = (x, y) if exactly else (x.double(), y.double())
    expected = torch.stack([function(a, b) for a, b in zip(*wide, strict=True)]).to(dtype)
    found = kernels.elementwise(of_two(dtype), x, y)[name]
    if name in ("minimum", "maximum", "fmin", "fmax"):  # which zero is less is nobody's business
        found, expected = found + 0, expected + 0
    assert_same(found, expected, [x, y], exactly=exactly)


@pytest.mark.parametrize("dtype", INTEGER_TYPES, ids=str)
def test_integers_are_torchs(kernels: Kernels, dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    some = torch.tensor([0, 1, 2, 3, 7, 100, limits.max, limits.max - 1, limits.min, limits.min + 1])
    if dtype.is_signed:
        some = torch.cat([some, torch.tensor([-1, -2, -3, -7, -100])])
    x, y = (each.flatten().to(dtype) for each in torch.meshgrid(some, some, indexing="ij"))
    for name, function in INTEGERS.items():
        a, b = x, y
        if name in ("floor_divide", "trunc_divide", "remainder", "fmod"):
            sound = (b != 0) & ~((a == limits.min) & (b == -1) & dtype.is_signed)  # torch raises, or the processor does
            a, b = a[sound], b[sound]
        elif name == "pow":
            a, b = a[y >= 0], b[y >= 0]
        found = kernels.elementwise(of_integers(dtype), a.contiguous(), b.contiguous())[name]
        wrong = (found != function(a, b)).nonzero().flatten()[:5]
        assert len(wrong) == 0, (name, a[wrong], b[wrong], found[wrong], function(a, b)[wrong])
    found_of_one = kernels.elementwise(of_integer(dtype), some.to(dtype))
    assert torch.equal(found_of_one["absolute"], some.to(dtype).abs())
    assert torch.equal(found_of_one["sign"], some.to(dtype).sign())


def test_integers_divided_by_zero_do_not_end_the_process(kernels: Kernels) -> None:
    for dtype in INTEGER_TYPES:
        zero = torch.zeros(20, dtype=dtype)
        found = kernels.elementwise(of_integers(dtype), zero + 3, zero)
        assert all(torch.equal(found[name], zero) for name in ("floor_divide", "trunc_divide", "remainder", "fmod"))


def test_comparisons_and_truth(kernels: Kernels) -> None:
    for dtype in COMPARED:
        values = [0, 1, -1, 100, -100, 5] if dtype is not torch.uint8 else [0, 1, 255, 100, 128, 127]
        some = torch.tensor(values + ([math.inf, -math.inf, math.nan, -0.0] if dtype.is_floating_point else []))
        x, y = (each.flatten().to(dtype) for each in torch.meshgrid(some, some, indexing="ij"))
        for name, found in kernels.elementwise(comparisons_of(dtype), x, y).items():
            assert torch.equal(found, COMPARISONS[name](x, y)), (name, dtype)
    for dtype in FLOAT_TYPES:
        some = torch.tensor(SPECIAL, dtype=dtype)
        for name, found in kernels.elementwise(questions_of(dtype), some).items():
            assert torch.equal(found, TESTS[name](some)), (name, dtype)
    x, y = torch.tensor([True, True, False, False] * 9), torch.tensor([True, False] * 18)
    for name, found in kernels.elementwise(LOGIC, x, y).items():
        assert torch.equal(found, LOGICAL[name](x, y)), name
    assert torch.equal(kernels.elementwise(NOT, x)["logical_not"], ~x)


# --- casts and storage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("processor", PROCESSORS)
def test_casts_are_torchs(processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit_cpp, "capability", lambda: processor)
    launches = []
    for source in ALL_TYPES:
        values = [0.0, 1.0, 2.5, 100.75, -0.0] + ([-1.0, -2.5, -100.75] if source.is_signed else [])
        if source.is_floating_point:
            values += [1e-3, 65504.0, 65519.0, 65520.0, 1e-7, 6e-8, 3.0e-5, math.inf, -math.inf, math.nan, 1 / 3, 0.1]
        x = torch.tensor(values, dtype=torch.float64).repeat(3).to(source)
        finite = x[(x == x) & (x.double().abs() < 101)] if source.is_floating_point else x
        for target in ALL_TYPES:
            given = x if target.is_floating_point or target is torch.bool else finite
            if target is torch.uint8 and source.is_signed:
                given = given[given.double() >= 0]
            cast = programs.build(
                f"test::cast_{str(source)[6:]}_{str(target)[6:]}",
                [source],
                lambda builder, each, target=target: [each.to(target)],
                [("output", target, None)],
            )
            launches.append((Launch(cast, tuple(given.shape), [given], [None]), given.to(target)))
    kernels = Kernels(launches=[launch for launch, _ in launches])
    for launch, expected in launches:
        (found,) = launch.run(kernels)
        assert torch.equal(found.isnan(), expected.isnan()), launch
        assert torch.equal(found.nan_to_num(7.5), expected.nan_to_num(7.5)), (launch, found, expected)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_round_to_nearest_even(processor: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every half number, what lies halfway between two of them, and a little to either side."""
    monkeypatch.setattr(emit_cpp, "capability", lambda: processor)
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype).float()
    every = every[every.isfinite()].sort().values
    middle = (every[1:] + every[:-1]) / 2
    away = torch.full_like(middle, math.inf)
    x = torch.cat([every, middle, torch.nextafter(middle, away), torch.nextafter(middle, -away)])
    x = torch.cat([x, torch.tensor([65519.99, 65520.0, 1e6, 3.4e38, -3.4e38, math.inf, -math.inf])])
    program = programs.build(
        "test::round", [torch.float32], lambda builder, each: [each.to(dtype), each.to(dtype).to(torch.float32)],
        [("half", dtype, None), ("back", torch.float32, None)],
    )  # fmt: skip
    launch = Launch(program, tuple(x.shape), [x], [None, None])
    half, back = launch.run(Kernels(launches=[launch]))
    assert torch.equal(half, x.to(dtype)) and torch.equal(back, x.to(dtype).float())


def test_functions_take_plain_numbers() -> None:
    """What depends on arguments alone is computed without vectors."""
    names = [name for name in FLOATS if name != "lgamma"]

    def formula(builder: Any, x: Any, number: Any) -> list[Any]:
        calls = (builder.call(Function(name), [number], torch.float64) for name in names)
        return [value + 0 * x for value in calls]

    program = programs.build(
        "test::numbers", [torch.float64], formula, [(name + "_of", torch.float64, None) for name in names],
        scalars=[("number", torch.float64)],
    )  # fmt: skip
    number = 0.625
    launch = Launch(program, (3,), [torch.zeros(3, dtype=torch.float64)], [None] * len(names), scalars=(number,))
    for name, found in zip(names, launch.run(Kernels(launches=[launch])), strict=True):
        true = truth(FLOATS[name][0], number)
        if isinstance(true, mp.mpf):
            assert found[0].item() == pytest.approx(float(true), rel=2e-15), name
