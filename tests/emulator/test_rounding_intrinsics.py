"""Arithmetic and conversions with the rounding in their names: to the last bit what fractions give."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch

import opsmith

from . import exact_rounding
from .exact_rounding import DOUBLE, FLOAT, MODES, OPERATIONS, Binary, samples
from .intrinsic_kernels import Group, applied, check, source

# --- Arithmetic with the rounding in its name ------------------------------------------------------------------------

_KINDS = {"f": ("float", FLOAT), "d": ("double", DOUBLE)}


def _in_modes(*names: str) -> list[str]:
    return [f"{name}_{mode}" for name in names for mode in MODES]


ARITHMETIC = {
    each.name: each
    for letter, (kind, _) in _KINDS.items()
    for each in (
        Group(f"{letter}_one", kind, (kind,), _in_modes(f"__{letter}rcp", f"__{letter}sqrt")),
        Group(f"{letter}_two", kind, (kind,) * 2, _in_modes(*(f"__{letter}{o}" for o in ("add", "sub", "mul", "div")))),
        Group(f"{letter}_three", kind, (kind,) * 3, _in_modes("__fma" if letter == "d" else "__fmaf", "__fmaf_ieee")),
    )
}
ARITHMETIC["f_root"] = Group("f_root", "float", ("float",), ["__frsqrt_rn"])
ARITHMETIC["d_three"] = ARITHMETIC["d_three"]._replace(functions=_in_modes("__fma"))
ARITHMETIC_SOURCE = source(list(ARITHMETIC.values()))
_OPERATION = re.compile(r"__[fd]?(?P<name>add|sub|mul|div|rcp|sqrt|rsqrt|fma)f?(?:_ieee)?_(?P<mode>r.)")


def arguments(to: Binary, count: int) -> list[Any]:
    """Numbers of all kinds in all combinations; some that cancel, and what a product of two had to drop."""
    drawn = [numpy.random.default_rng(seed).permutation(samples(to, 500, seed)) for seed in range(count)]
    if count > 1:
        drawn[1][:40] = -drawn[0][:40]
        drawn[1][40:80] = drawn[0][40:80]
    if count > 2:
        with numpy.errstate(all="ignore"):
            drawn[2][80::3] = -(drawn[0] * drawn[1])[80::3]
    return drawn


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("checks", [True, False])
def test_arithmetic_is_rounded_once_and_as_its_name_says(name: str, checks: bool) -> None:
    group, to = ARITHMETIC[name], _KINDS[name[0]][1]
    values = arguments(to, len(group.parameters))
    with opsmith.emulate(checks=checks):
        given = applied(ARITHMETIC_SOURCE, group, *values)
    wanted = {}
    for function in group.functions:
        found = _OPERATION.fullmatch(function)
        assert found is not None
        wanted[function] = exact_rounding.wanted(OPERATIONS[found["name"]], found["mode"], to, *values)
    check(given, wanted, values)


# Of sm_100 and later.
PAIRS = {
    2: Group("pairs_of_two", "float2", ("float2",) * 2, _in_modes("__fadd2", "__fmul2")),
    3: Group("pairs_of_three", "float2", ("float2",) * 3, _in_modes("__ffma2")),
}
PAIRS_SOURCE = source(list(PAIRS.values()))


@pytest.mark.parametrize("count", PAIRS)
def test_arithmetic_on_pairs_is_that_on_their_parts(count: int) -> None:
    values = [value[:500] for value in arguments(FLOAT, count)]
    with opsmith.emulate():
        given = applied(PAIRS_SOURCE, PAIRS[count], *values)
        parts = applied(ARITHMETIC_SOURCE, ARITHMETIC["f_two" if count == 2 else "f_three"], *values)
    wanted = {name: parts[name.replace("2_", "_").replace("__ffma", "__fmaf")] for name in PAIRS[count].functions}
    check(given, wanted, values)


# --- Conversions -----------------------------------------------------------------------------------------------------

_INTEGERS = {
    "int": ("int", 32, True), "uint": ("unsigned", 32, False), "ll": ("long long", 64, True),
    "ull": ("unsigned long long", 64, False),
}  # fmt: skip
TO_INTEGERS = {
    f"{kind}_to_{word}": Group(f"{kind}_to_{word}", result, (kind,), _in_modes(f"__{kind}2{word}"))
    for kind in ("float", "double")
    for word, (result, _, _) in _INTEGERS.items()
}
TO_FLOATS = {
    f"{word}_to_{kind}": Group(f"{word}_to_{kind}", kind, (given,), [f"__{word}2{kind}_{mode}" for mode in modes])
    for word, (given, bits, _) in _INTEGERS.items()
    for kind in ("float", "double")
    for modes in [MODES if kind == "float" or bits == 64 else ("rn",)]
}
NARROWED = Group("narrowed", "float", ("double",), _in_modes("__double2float"))
CONVERSIONS_SOURCE = source([*TO_INTEGERS.values(), *TO_FLOATS.values(), NARROWED])


def numbers_near_integers(to: Binary) -> Any:
    """Halves, ends of the ranges and their neighbours, and numbers of all kinds."""
    whole = [0, 1, 2, 3, 2**23, 2**24, 2**31, 2**32, 2**52, 2**53, 2**63, 2**64]
    near = [sign * (n + d) for n in whole for d in (-1, -0.5, -0.25, 0, 0.25, 0.5, 1) for sign in (1, -1)]
    around = numpy.array(near).astype(to.dtype)
    steps = [numpy.nextafter(around, to.dtype(end)) for end in (numpy.inf, -numpy.inf)]
    return numpy.concatenate([around, *steps, samples(to, 300, 12)])


@pytest.mark.parametrize("name", TO_INTEGERS)
def test_a_number_becomes_the_whole_one_that_the_name_says_or_the_nearest_there_is(name: str) -> None:
    group, to = TO_INTEGERS[name], FLOAT if name.startswith("float") else DOUBLE
    _, bits, signed = _INTEGERS[name.rpartition("_")[2]]
    least, greatest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    # PTX: NaN is 0, but from a double or to 64 bits it is the upper bit alone.
    of_nan = 2 ** (bits - 1) if to is DOUBLE or bits == 64 else 0
    x = numbers_near_integers(to)
    with opsmith.emulate():
        given = applied(CONVERSIONS_SOURCE, group, x)
    kind = numpy.dtype(f"{'i' if signed else 'u'}{bits // 8}")

    def converted(value: float, mode: str) -> int:
        if math.isnan(value):
            return of_nan - 2**bits * (signed and of_nan > greatest)
        if math.isinf(value):
            return greatest if value > 0 else least
        return min(max(exact_rounding.whole(Fraction(value), mode), least), greatest)

    wanted = {f: numpy.array([converted(float(value), f[-2:]) for value in x], kind) for f in group.functions}
    check(given, wanted, [x])


@pytest.mark.parametrize("name", TO_FLOATS)
def test_an_integer_becomes_the_number_next_to_it_that_the_name_says(name: str) -> None:
    group, to = TO_FLOATS[name], FLOAT if name.endswith("float") else DOUBLE
    _, bits, signed = _INTEGERS[name.partition("_")[0]]
    least, greatest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    random = numpy.random.default_rng(13)
    drawn = [
        sign * (2**k + d)
        for k in range(bits)
        for d in (-1, 0, 1, 2 ** max(k - 24, 0), 2 ** max(k - 53, 0))
        for sign in (1, -1)
    ]
    drawn += [
        0,
        least,
        least + 1,
        greatest,
        greatest - 1,
        *random.integers(least, greatest, 200, dtype=f"{'i' if signed else 'u'}8").tolist(),
    ]
    x = numpy.array([n for n in drawn if least <= n <= greatest], f"{'i' if signed else 'u'}{bits // 8}")
    with opsmith.emulate():
        given = applied(CONVERSIONS_SOURCE, group, x)
    wanted = {
        f: numpy.array([exact_rounding.rounded(Fraction(int(n)), f[-2:], to) if n else 0.0 for n in x], to.dtype)
        for f in group.functions
    }
    check(given, wanted, [x])


def test_a_double_becomes_the_float_next_to_it_that_the_name_says() -> None:
    edges = [2.0**-149, 2.0**-150, 1.5 * 2.0**-149, 2.0**-126, float(FLOAT.largest), 2.0**128, 2.0**128 - 2.0**103]
    around = numpy.array([sign * edge for edge in edges for sign in (1, -1)])
    steps = [numpy.nextafter(around, end) for end in (numpy.inf, -numpy.inf)]
    x = numpy.concatenate([around, *steps, samples(FLOAT, 200, 14).astype(numpy.float64), samples(DOUBLE, 400, 15)])
    with opsmith.emulate():
        given = applied(CONVERSIONS_SOURCE, NARROWED, x)
    same_number = exact_rounding.Operation(lambda value: value, lambda values: values.astype(numpy.float32))
    check(given, {f: exact_rounding.wanted(same_number, f[-2:], FLOAT, x) for f in NARROWED.functions}, [x])


def test_the_bits_of_one_type_are_taken_for_anothers() -> None:
    cu = opsmith.cuda_source(r"""
__global__ void k(const double* x, const float* y, long long* bits, double* back, float* narrow) {
  const int i = threadIdx.x;
  const double joined = __hiloint2double(__double2hiint(x[i]), __double2loint(x[i]));
  back[i] = __longlong_as_double(__double_as_longlong(joined));
  bits[2 * i] = __double_as_longlong(x[i]);
  bits[2 * i + 1] = __float_as_int(y[i]) ^ (long long)__float_as_uint(y[i]) << 32;
  narrow[i] = __uint_as_float(__float_as_uint(__int_as_float(__float_as_int(y[i]))));
}
""")
    x, y = torch.from_numpy(samples(DOUBLE, 600, 16)[:600]), torch.from_numpy(samples(FLOAT, 600, 17)[:600])
    bits, back, narrow = torch.zeros(600, 2, dtype=torch.int64), torch.zeros_like(x), torch.zeros_like(y)
    with opsmith.emulate():
        cu.k[1, 600](x, y, bits, back, narrow)
    assert torch.equal(back.view(torch.int64), x.view(torch.int64)) and torch.equal(bits[:, 0], x.view(torch.int64))
    assert torch.equal(narrow.view(torch.int32), y.view(torch.int32))
    signed = y.view(torch.int32).to(torch.int64)
    assert torch.equal(bits[:, 1], signed ^ (signed & 0xFFFFFFFF) << 32)


_MODE = {"rn": "cudaRoundNearest", "rz": "cudaRoundZero", "ru": "cudaRoundPosInf", "rd": "cudaRoundMinInf"}


def test_names_that_take_the_rounding_as_an_argument_round_so() -> None:
    shape = {
        "dadd": ("x, y", "__dadd"), "dsub": ("x, y", "__dsub"), "dmul": ("x, y", "__dmul"),
        "fma": ("x, y, x", "__fma"), "double2int": ("x", "__double2int"), "double2uint": ("x", "__double2uint"),
        "double2ll": ("x", "__double2ll"), "double2ull": ("x", "__double2ull"),
        "ll2double": ("(long long)(x * 1e12)", "__ll2double"),
        "ull2double": ("(unsigned long long)(x * 1e12)", "__ull2double"),
    }  # fmt: skip
    lines = "".join(
        f"  same &= {name}({given}, {word}) == {new}_{mode}({given});\n"
        for name, (given, new) in shape.items()
        for mode, word in _MODE.items()
    )
    cu = opsmith.cuda_source(
        "__global__ void k(const double* a, const double* b, int* out) {\n  const double x = a[threadIdx.x], "
        f"y = b[threadIdx.x];\n  bool same = true;\n{lines}  same &= double2int(x) == __double2int_rz(x);\n"
        "  out[threadIdx.x] = same && dadd(x, y) == x + y && fdividef(2.0f, 4.0f) == 0.5f;\n}\n"
    )
    x, y, out = (
        torch.rand(256, dtype=torch.float64) + 0.1,
        torch.rand(256, dtype=torch.float64),
        torch.zeros(256, dtype=torch.int32),
    )
    with opsmith.emulate():
        cu.k[1, 256](x, y, out)
    assert out.all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*ARITHMETIC, *TO_INTEGERS, *TO_FLOATS, NARROWED.name])
def test_a_gpu_gives_the_same_bits(name: str) -> None:
    group = {**ARITHMETIC, **TO_INTEGERS, **TO_FLOATS, NARROWED.name: NARROWED}[name]
    cu = ARITHMETIC_SOURCE if name in ARITHMETIC else CONVERSIONS_SOURCE
    if name in ARITHMETIC:
        values = arguments(_KINDS[name[0]][1], len(group.parameters))
    elif name in TO_FLOATS:
        values = [numpy.random.default_rng(18).integers(0, 2**63, 500) * (-1) ** numpy.arange(500)]
    else:
        values = [numbers_near_integers(FLOAT if name.startswith("float") else DOUBLE)]
    with opsmith.emulate():
        emulated = applied(cu, group, *values)
    check(applied(cu, group, *values, device="cuda"), emulated, values)
