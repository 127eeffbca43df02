"""Mathematical functions that the emulator computes itself: within a unit in the last place of mpmath's 60 digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy
import pytest
import torch

import opsmith

from .exact_rounding import DOUBLE, FLOAT
from .intrinsic_kernels import Group, applied, source

DIGITS = 60
_RANDOM = numpy.random.default_rng(30)


class Special(NamedTuple):
    """A function: what it is, where it is tried, and what it gives at the ends."""

    exact: Callable[..., Any]
    low: float
    high: float
    ends: list[tuple[float, float]]


def _inverse_erfc(y: Any) -> Any:
    if y > mpmath.mpf("1e-30"):
        return mpmath.erfinv(1 - y)
    return mpmath.findroot(lambda x: mpmath.log(mpmath.erfc(x)) - mpmath.log(y), mpmath.sqrt(-mpmath.log(y)))


INF, NAN = math.inf, math.nan
SPECIAL = {
    "erfinv": Special(
        mpmath.erfinv, -1, 1, [(1, INF), (-1, -INF), (0, 0), (-0.0, -0.0), (1.5, NAN), (-2, NAN), (INF, NAN)]
    ),
    "erfcinv": Special(_inverse_erfc, 0, 2, [(0, INF), (2, -INF), (1, 0), (-1, NAN), (2.5, NAN)]),
    "erfcx": Special(
        lambda x: mpmath.exp(x * x) * mpmath.erfc(x), -9, 200, [(0, 1), (INF, 0), (-INF, INF), (-30, INF)]
    ),
    "normcdf": Special(mpmath.ncdf, -12, 9, [(INF, 1), (-INF, 0), (0, 0.5), (40, 1)]),
    "normcdfinv": Special(lambda p: -mpmath.sqrt(2) * _inverse_erfc(2 * p), 0, 1, [(0, -INF), (1, INF), (-1, NAN)]),
    "cyl_bessel_i0": Special(lambda x: mpmath.besseli(0, x), -80, 80, [(0, 1), (INF, INF), (-INF, INF), (800, INF)]),
    "cyl_bessel_i1": Special(lambda x: mpmath.besseli(1, x), -80, 80, [(0, 0), (INF, INF), (-INF, -INF), (-800, -INF)]),
    "sinpi": Special(
        mpmath.sinpi,
        -50,
        50,
        [(1, 0), (0.5, 1), (-3, -0.0), (2e9, 0), (-0.0, -0.0), (INF, NAN), (1e300, 0), (-2.5, -1)],
    ),
    "cospi": Special(
        mpmath.cospi, -50, 50, [(1, -1), (0.5, 0), (-1.5, 0), (2e9, 1), (-INF, NAN), (1e300, 1), (2.5, 0)]
    ),
    "rsqrt": Special(lambda x: 1 / mpmath.sqrt(x), 0, 1e9, [(0, INF), (-0.0, -INF), (INF, 0), (-1, NAN), (4, 0.5)]),
    "rcbrt": Special(
        lambda x: mpmath.sign(x) / mpmath.cbrt(abs(x)), -1e9, 1e9, [(0, INF), (-0.0, -INF), (INF, 0), (-8, -0.5)]
    ),
}
KINDS = {"double": ("", numpy.float64), "float": ("f", numpy.float32)}
GROUPS = {
    kind: Group(f"special_{kind}", kind, (kind,), [f"{name}{ending}" for name in SPECIAL])
    for kind, (ending, _) in KINDS.items()
}
OVERLOADS = Group("overloads", "float", ("float",), list(SPECIAL))
SOURCE = source([*GROUPS.values(), OVERLOADS])


def places(special: Special, kind: str) -> Any:
    """Where a function is tried: all over, near zero, and near its ends."""
    drawn = _RANDOM.uniform(special.low, special.high, 50)
    tiny = (drawn - special.low) * 10.0 ** -_RANDOM.uniform(3, 30, 50) + (special.low if special.low == 0 else 0)
    return numpy.concatenate([drawn, tiny]).astype(KINDS[kind][1])


def distance(given: Any, exact: Any, dtype: Any) -> float:
    """How far a number is from the exact one, in units in the last place."""
    if exact == 0:
        return 0.0 if given == 0 else INF
    to = DOUBLE if dtype is numpy.float64 else FLOAT
    exponent = max(math.frexp(float(exact))[1] - 1, to.least)
    return float(abs(mpmath.mpf(float(given)) - exact) / mpmath.mpf(2) ** (exponent - to.fraction))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPECIAL)
def test_a_function_is_within_a_unit_in_the_last_place(name: str, kind: str) -> None:
    special, (ending, dtype) = SPECIAL[name], KINDS[kind]
    x = places(special, kind)
    with opsmith.emulate():
        given = applied(SOURCE, GROUPS[kind], x)[f"{name}{ending}"]
    with mpmath.workdps(DIGITS):
        for value, result in zip(x, given, strict=True):
            away = distance(result, special.exact(mpmath.mpf(float(value))), dtype)
            assert away <= 1, f"{name}{ending}({value!r}) is {result!r}, {away} units off"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPECIAL)
def test_at_the_ends_of_its_domain_a_function_gives_what_cuda_documents(name: str, kind: str) -> None:
    ending, dtype = KINDS[kind]
    ends = [(x, wanted) for x, wanted in SPECIAL[name].ends if abs(x) < float(numpy.finfo(dtype).max) or math.isinf(x)]
    x, wanted = (numpy.array(column, dtype) for column in zip(*ends, (NAN, NAN), strict=True))
    with opsmith.emulate():
        given = applied(SOURCE, GROUPS[kind], x)[f"{name}{ending}"]
    numpy.testing.assert_array_equal(given, wanted, err_msg=str(x))
    zeros = wanted == 0
    assert (numpy.signbit(given) == numpy.signbit(wanted))[zeros].all(), f"{x[zeros]}: {given[zeros]}"


def test_the_overloads_for_float_are_the_functions_with_an_f() -> None:
    x = numpy.linspace(-3, 3, 301, dtype=numpy.float32)
    with opsmith.emulate():
        plain, with_f = applied(SOURCE, OVERLOADS, x), applied(SOURCE, GROUPS["float"], x)
    for name in SPECIAL:
        numpy.testing.assert_array_equal(plain[name], with_f[f"{name}f"])


def test_inverses_reach_the_smallest_numbers() -> None:
    x = numpy.array([5e-324, 1e-320, 2.3e-308, 1e-300, 1e-100, 1e-17, 2.0**-53])
    with opsmith.emulate():
        given = applied(SOURCE, GROUPS["double"], x)
    with mpmath.workdps(DIGITS):
        for name in ("erfcinv", "normcdfinv"):
            for value, result in zip(x, given[name], strict=True):
                assert distance(result, SPECIAL[name].exact(mpmath.mpf(float(value))), numpy.float64) <= 1


# --- Lengths ---------------------------------------------------------------------------------------------------------

LENGTHS = opsmith.cuda_source("".join(
    f"""
__global__ void of_{kind}(const {kind}* x, {kind}* out, int n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const {kind} a = x[4 * i], b = x[4 * i + 1], c = x[4 * i + 2], d = x[4 * i + 3];
  const {kind} results[] = {{
      rhypot{f}(a, b), norm3d{f}(a, b, c), rnorm3d{f}(a, b, c), norm4d{f}(a, b, c, d), rnorm4d{f}(a, b, c, d),
      norm{f}(4, x + 4 * i), rnorm{f}(4, x + 4 * i), hypot{f}(a, b)}};
  for (int k = 0; k < 8; ++k) out[k * n + i] = results[k];
}}
"""
    for kind, (f, _) in KINDS.items()
))  # fmt: skip
_SIZES = [
    (2, True),
    (3, False),
    (3, True),
    (4, False),
    (4, True),
    (4, False),
    (4, True),
    (2, False),
]  # of 1 / the length?


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_neither_overflow_nor_underflow_in_between(kind: str) -> None:
    dtype = KINDS[kind][1]
    largest = numpy.finfo(dtype).max
    random = numpy.random.default_rng(31)
    rows = [random.normal(size=4) * 10.0**k for k in (-30, 0, 30) for _ in range(20)]
    rows += [numpy.array([largest, 0, 0, 0]) * s for s in (1, 0.5)] + [numpy.full(4, float(largest) / 4)]
    rows += [numpy.full(4, float(numpy.finfo(dtype).tiny)), numpy.zeros(4)]
    x = numpy.array(rows).astype(dtype)
    out = torch.from_numpy(numpy.zeros((8, len(x)), dtype))
    with opsmith.emulate():
        LENGTHS[f"of_{kind}"][4, 32](torch.from_numpy(x), out, len(x))
    with mpmath.workdps(DIGITS):
        for row, results in zip(x, out.numpy().T, strict=True):
            for (size, inverted), result in zip(_SIZES, results, strict=True):
                length = mpmath.sqrt(sum(mpmath.mpf(float(value)) ** 2 for value in row[:size]))
                if length == 0:
                    assert result == (INF if inverted else 0)
                elif not inverted and length > mpmath.mpf(float(largest)):
                    assert result == INF
                else:
                    assert distance(result, 1 / length if inverted else length, dtype) <= 1


def test_an_infinite_part_makes_a_length_infinite_whatever_the_others_are() -> None:
    x = torch.tensor([[INF, NAN, 0.0, 1.0], [0.0, -INF, NAN, NAN], [NAN, 1.0, 1.0, 1.0]])
    out = torch.zeros(8, 3)
    with opsmith.emulate():
        LENGTHS.of_float[1, 32](x, out, 3)
    inverted = torch.tensor([inverted for _, inverted in _SIZES])
    for row in range(2):
        assert torch.equal(out[:, row], torch.where(inverted, 0.0, INF))
    assert out[:, 2].isnan().all()


# --- The C library's, under CUDA's names -----------------------------------------------------------------------------

# Units in the last place that the C library or CUDA documents, whichever are more; Bessel functions' away from zeros.
DOCUMENTED: dict[str, tuple[Callable[..., Any], float, float, int]] = {
    "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), -1e9, 1e9, 4),
    "erf": (mpmath.erf, -5, 5, 2),
    "erfc": (mpmath.erfc, -5, 8, 5),
    "tgamma": (mpmath.gamma, 0.5, 30, 10),
    "lgamma": (mpmath.loggamma, 3, 1000, 6),
    "exp10": (lambda x: mpmath.mpf(10) ** x, -30, 30, 2),
    "expm1": (mpmath.expm1, -20, 20, 2),
    "log1p": (mpmath.log1p, -0.99, 1e6, 2),
    "j0": (lambda x: mpmath.besselj(0, x), 0, 2, 9),
    "j1": (lambda x: mpmath.besselj(1, x), 0.1, 3, 9),
    "y0": (lambda x: mpmath.bessely(0, x), 2, 3, 9),
    "y1": (lambda x: mpmath.bessely(1, x), 0.1, 1.9, 9),
}
DOCUMENTED_GROUPS = {
    kind: Group(f"documented_{kind}", kind, (kind,), [f"{name}{ending}" for name in DOCUMENTED])
    for kind, (ending, _) in KINDS.items()
}
DOCUMENTED_SOURCE = source(list(DOCUMENTED_GROUPS.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_c_librarys_functions_are_as_near_as_is_documented(kind: str) -> None:
    ending, dtype = KINDS[kind]
    for name, (exact, low, high, units) in DOCUMENTED.items():
        x = _RANDOM.uniform(low, high, 60).astype(dtype)
        with opsmith.emulate():
            given = applied(DOCUMENTED_SOURCE, DOCUMENTED_GROUPS[kind], x)[f"{name}{ending}"]
        with mpmath.workdps(DIGITS):
            for value, result in zip(x, given, strict=True):
                away = distance(result, exact(mpmath.mpf(float(value))), dtype)
                assert away <= units, f"{name}{ending}({value!r}) is {result!r}, {away} units off"


def test_complex_numbers_of_c_are_pythons() -> None:
    cu = opsmith.cuda_source(r"""
#include <cuComplex.h>
__global__ void k(const cuDoubleComplex* x, const cuDoubleComplex* y, cuDoubleComplex* out, int n) {
  const int i = threadIdx.x;
  const cuDoubleComplex a = x[i], b = y[i];
  const cuFloatComplex c = cuComplexDoubleToFloat(a), d = cuComplexDoubleToFloat(b);
  const cuDoubleComplex results[] = {
      cuCadd(a, b), cuCsub(a, b), cuCmul(a, b), cuCdiv(a, b), cuConj(a), cuCfma(a, b, a),
      make_cuDoubleComplex(cuCabs(a), cuCreal(a) - cuCimag(a)), cuComplexFloatToDouble(cuCdivf(c, d)),
      cuComplexFloatToDouble(cuCfmaf(c, d, make_cuComplex(1.0f, cuCabsf(c))))};
  for (int k = 0; k < 9; ++k) out[k * n + i] = results[k];
}
""")
    x, y = (torch.randn(64, dtype=torch.complex128) for _ in range(2))
    out = torch.zeros(9, 64, dtype=torch.complex128)
    with opsmith.emulate():
        cu.k[1, 64](x, y, out, 64)
    torch.testing.assert_close(
        out[:7], torch.stack([x + y, x - y, x * y, x / y, x.conj(), x * y + x, torch.complex(x.abs(), x.real - x.imag)])
    )
    wanted = torch.stack([x / y, x * y + torch.complex(torch.ones_like(x.real), x.abs())])
    torch.testing.assert_close(out[7:], wanted, rtol=1e-5, atol=1e-5)


def test_functions_that_store_a_result_are_checked_like_any_store() -> None:
    cu = opsmith.cuda_source(r"""
__global__ void sine(const float* x, float* s, float* c) { sincosf(x[threadIdx.x], &s[threadIdx.x], &c[threadIdx.x]); }
__global__ void parts(const double* x, int* e, double* m) { m[threadIdx.x] = frexp(x[threadIdx.x], &e[threadIdx.x]); }
__global__ void turns(float* x, float* s, float* c) { sincospif(x[threadIdx.x], s + threadIdx.x, c + threadIdx.x); }
__global__ void length(const float* x, float* y) { *y = normf(5, x); }
""")
    x = torch.rand(8)
    s, c, e = torch.zeros(8), torch.zeros(8), torch.zeros(8, dtype=torch.int32)
    with opsmith.emulate():
        cu.sine[1, 8](x, s, c)
        assert torch.allclose(s, x.sin()) and torch.allclose(c, x.cos())
        cu.parts[1, 8](x.double(), e, m := torch.zeros(8, dtype=torch.float64))
        assert torch.equal(m * 2.0**e, x.double())
        for number, launch in enumerate((
            lambda: cu.sine[1, 8](x, s[:7], c), lambda: cu.parts[1, 8](x.double(), e[:7], m),
            lambda: cu.turns[1, 8](x, s, c[:7]), lambda: cu.length[1, 1](x[:4], s),
        )):  # fmt: skip
            with pytest.raises(opsmith.KernelFault) as caught:
                launch()
            assert caught.value.kind == "out of bounds"
            assert f"__global__ void {('sine', 'parts', 'turns', 'length')[number]}" in _line(caught.value.line)


def _line(number: int | None) -> str:
    with open(__file__) as file:
        return file.read().splitlines()[(number or 1) - 1]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_gives_the_same_but_for_what_cuda_documents(kind: str) -> None:
    # The largest of the bounds that CUDA documents for these functions, float and double.
    for name in SPECIAL:
        x = places(SPECIAL[name], kind)
        with opsmith.emulate():
            emulated = applied(SOURCE, GROUPS[kind], x)[f"{name}{KINDS[kind][0]}"]
        given = applied(SOURCE, GROUPS[kind], x, device="cuda")[f"{name}{KINDS[kind][0]}"]
        step = numpy.spacing(numpy.abs(emulated))
        away = numpy.abs(given.astype(numpy.float64) - emulated) / step
        assert (away <= 9).all(), f"{name}: {away.max()} units at {x[away.argmax()]!r}"
