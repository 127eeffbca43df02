"""cuda_fp16.h and cuda_bf16.h: every operation bit by bit, against torch and against exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch

import opsmith

from .half_kernels import FORMATS, Format
from .header_harness import Library, compile_text

ALL_BITS = numpy.arange(65536, dtype=numpy.uint16)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Library]:
    directory = tmp_path_factory.mktemp("headers")
    return lambda text, checks=True: Library(text, directory, checks=checks)


@pytest.fixture(scope="module", params=list(FORMATS))
def format(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


@pytest.fixture(scope="module")
def half(format: Format, build: Callable[..., Library]) -> Library:
    return build(format.text(), checks=False)


def results(library: Library, kernel: str, count: int, type: Any, *inputs: Any) -> Any:
    """What each of the kernel's functions gave, [count, n]."""
    n = len(inputs[0])
    out = numpy.zeros((count, n), type)
    library(kernel, -(-n // 256), 256, *inputs, out, n)
    return out


def same_bits(given: Any, wanted: Any, *inputs: Any) -> None:
    wrong = numpy.flatnonzero(given != wanted)
    first = wrong[:1]
    assert len(wrong) == 0, (
        f"{len(wrong)} differ, as {given[first]} for {wanted[first]} of {[x[first] for x in inputs]}"
    )


def torch_bits(format: Format, tensor: torch.Tensor) -> Any:
    return numpy.where(tensor.isnan().numpy(), 0x7FFF, tensor.view(torch.int16).numpy().view(numpy.uint16))


# --- Conversions -----------------------------------------------------------------------------------------------------


def floats(format: Format) -> Any:
    """Every number of the format, the middle between any two, floats next to both, and floats of any bits."""
    numbers = format.numbers(ALL_BITS)
    numbers = numpy.unique(numbers[numpy.isfinite(numbers)])
    middles = (numbers[1:] + numbers[:-1]) / 2
    beyond = numpy.array([format.largest * (1 + 2.0**-k) for k in range(1, 16)])
    with numpy.errstate(over="ignore"):
        exact = numpy.concatenate([numbers, middles, beyond, -beyond]).astype(numpy.float32)
    near = [exact, numpy.nextafter(exact, numpy.float32(-numpy.inf)), numpy.nextafter(exact, numpy.float32(numpy.inf))]
    any_bits = numpy.random.default_rng(0).integers(0, 2**32, 100_000, numpy.uint32).view(numpy.float32)
    special = numpy.array([0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan], numpy.float32)
    return numpy.concatenate([*near, any_bits, special])


def test_every_number_widens_to_the_float_that_it_is(format: Format, half: Library) -> None:
    wanted = format.tensor(ALL_BITS).float().numpy()
    for given in results(half, "widen", 5, numpy.float32, ALL_BITS):
        numpy.testing.assert_array_equal(given, wanted)
        numpy.testing.assert_array_equal(numpy.signbit(given[wanted == 0]), numpy.signbit(wanted[wanted == 0]))


def test_a_float_is_rounded_as_torch_rounds_it(format: Format, half: Library) -> None:
    x = floats(format)
    wanted = torch_bits(format, torch.from_numpy(x).to(format.dtype))
    given = results(half, "narrow", 10, numpy.uint16, x)
    for k in (0, 1, 5, 6, 7, 8, 9):  # by every name that rounds to nearest
        same_bits(given[k], wanted, x)


@pytest.mark.parametrize(("mode", "at"), [("rn", 1), ("rz", 2), ("rd", 3), ("ru", 4)])
def test_a_float_is_rounded_in_the_direction_that_the_name_says(
    format: Format, half: Library, mode: str, at: int
) -> None:
    x = floats(format)
    same_bits(results(half, "narrow", 10, numpy.uint16, x)[at], format.rounded(x, mode), x)


def test_a_double_is_rounded_once(format: Format, half: Library) -> None:
    # One unit of a double away from the middle of two numbers: as a float that would be the middle.
    with numpy.errstate(invalid="ignore"):
        exact = floats(format).astype(numpy.float64)
    x = numpy.concatenate([exact, numpy.nextafter(exact, -numpy.inf), numpy.nextafter(exact, numpy.inf)])
    for given in results(half, "narrow_double", 2, numpy.uint16, x):
        same_bits(given, format.rounded(x), x)


INTEGERS: list[tuple[str, Callable[[int], int]]] = [  # a rounding, and what the kernel makes of a long long before
    ("rn", lambda x: x),
    ("rz", lambda x: x),
    ("rd", lambda x: x),
    ("ru", lambda x: x),
    ("rn", lambda x: x % 2**64),
    ("rn", lambda x: (x + 2**31) % 2**32 - 2**31),
    ("ru", lambda x: x % 2**32),
    ("rn", lambda x: (x + 2**15) % 2**16 - 2**15),
    ("rz", lambda x: x % 2**16),
    ("rn", lambda x: x),
    ("rn", lambda x: (x + 2**31) % 2**32 - 2**31),
    ("rn", lambda x: x % 2**64),
]


def test_an_integer_is_rounded_once(format: Format, half: Library) -> None:
    draw = numpy.random.default_rng(1)
    ties = [(2**k + (2 * j + 1) * 2 ** max(0, k - format.fraction - 1)) for k in range(8, 62) for j in range(3)]
    near = [tie + d for tie in ties for d in (-1, 0, 1)]
    x = [int(n) for n in draw.integers(-(2**63), 2**63, 500) >> draw.integers(0, 60, 500)]
    x += near + [-n for n in near] + [0, 1, -1, 65504, 65519, 65520, 65535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
    given = results(half, "from_integers", 12, numpy.uint16, numpy.array(x, numpy.int64))
    for of_name, (mode, cut) in zip(given, INTEGERS, strict=True):
        wanted = [format.rounded_exactly(Fraction(cut(n)), mode) if cut(n) else 0.0 for n in x]
        same_bits(of_name, format.bits(numpy.array(wanted)), numpy.array(x))


TO_INTEGERS = [  # a rounding, and the least and greatest value
    (numpy.rint, -(2**31), 2**31 - 1), (numpy.trunc, -(2**31), 2**31 - 1), (numpy.floor, -(2**31), 2**31 - 1),
    (numpy.ceil, -(2**31), 2**31 - 1), (numpy.rint, 0, 2**32 - 1), (numpy.rint, -(2**15), 2**15 - 1),
    (numpy.trunc, 0, 2**16 - 1), (numpy.rint, -(2**63), 2**63 - 1), (numpy.trunc, 0, 2**64 - 1),
    (numpy.trunc, -128, 127), (numpy.trunc, 0, 255), (numpy.trunc, -(2**31), 2**31 - 1),
    (numpy.trunc, -(2**63), 2**63 - 1),
]  # fmt: skip


def test_an_integer_is_the_nearest_in_range_and_for_nan_what_cuda_says(format: Format, half: Library) -> None:
    numbers = format.numbers(ALL_BITS)
    given = results(half, "to_integers", 14, numpy.int64, ALL_BITS)
    for of_name, (whole, least, most) in zip(given, TO_INTEGERS, strict=False):
        of_nan = 2**63 if most - least == 2**64 - 1 else 0
        wanted = [
            of_nan if math.isnan(x) else most if x > most else least if x < least else int(whole(x))
            for x in numbers.tolist()
        ]
        same_bits(of_name.view(numpy.uint64), numpy.array([n % 2**64 for n in wanted], numpy.uint64), numbers)
    same_bits(given[13], (numbers != 0).astype(numpy.int64), numbers)  # as a bool: NaN is true


# --- Arithmetic ------------------------------------------------------------------------------------------------------


def operands(format: Format, count: int, many: int = 100_000) -> list[Any]:
    """Bits of numbers: all combinations of some that are special, and any at all."""
    special = format.bits(
        numpy.array(
            [0, 1, 1 + 2.0**-format.fraction, 0.5, 3, format.largest, numpy.inf, numpy.nan, 2.0 ** (1 - format.top)]
        )
    )
    special = numpy.concatenate([special, numpy.array([1, 2, 3, (1 << format.fraction) - 1], numpy.uint16)])
    special = numpy.concatenate([special, special | 0x8000]).astype(numpy.uint16)
    grids = numpy.meshgrid(*[special] * count)
    draw = numpy.random.default_rng(2)
    return [
        numpy.concatenate([grid.ravel(), draw.integers(0, 2**16, many, numpy.uint16)]).astype(numpy.uint16)
        for grid in grids
    ]


def close_operands(format: Format, many: int = 100_000) -> list[Any]:
    """Pairs that are near to each other, whose sums and quotients have no simple answer."""
    draw = numpy.random.default_rng(3)
    a = draw.integers(0, 2**15, many)
    b = numpy.clip(a + draw.integers(-(3 << format.fraction), 3 << format.fraction, many), 0, 2**15 - 1)
    signs = draw.integers(0, 2, (2, many)) << 15
    return [(a | signs[0]).astype(numpy.uint16), (b | signs[1]).astype(numpy.uint16)]


@pytest.fixture(scope="module")
def pairs(format: Format) -> list[Any]:
    return [numpy.concatenate(both) for both in zip(operands(format, 2), close_operands(format), strict=True)]


@pytest.fixture(scope="module")
def of_pairs(half: Library, pairs: list[Any]) -> Any:
    return results(half, "binary", 33, numpy.uint16, *pairs)


@pytest.mark.parametrize(
    ("operation", "names"),
    [(torch.add, range(6)), (torch.sub, range(6, 12)), (torch.mul, range(12, 18)), (torch.div, range(18, 23))],
    ids=["+", "-", "*", "/"],
)
def test_arithmetic_is_torchs_bit_by_bit(
    format: Format, pairs: list[Any], of_pairs: Any, operation: Callable[..., torch.Tensor], names: range
) -> None:
    wanted = torch_bits(format, operation(*[format.tensor(bits) for bits in pairs]))
    for at in names:
        same_bits(of_pairs[at], wanted, *pairs)


def test_arithmetic_is_rounded_once_and_a_nan_is_the_one_that_a_gpu_gives(
    format: Format, pairs: list[Any], of_pairs: Any
) -> None:
    a, b = (format.numbers(bits) for bits in pairs)
    with numpy.errstate(all="ignore"):
        # In float64 a product is exact, and sums and quotients have more than twice the bits and two to spare.
        for at, exact in ((0, a + b), (6, a - b), (12, a * b), (18, a / b)):
            same_bits(of_pairs[at], format.rounded(exact), a, b)


@pytest.mark.parametrize(("at", "sign"), [(23, "+"), (24, "-"), (25, "*"), (26, "+")])
def test_saturated_results_lie_within_0_and_1_and_nan_is_0(
    format: Format, pairs: list[Any], of_pairs: Any, at: int, sign: str
) -> None:
    plain = format.numbers(of_pairs[{"+": 0, "-": 6, "*": 12}[sign]])
    wanted = numpy.where(numpy.isnan(plain), 0.0, numpy.clip(plain, 0.0, 1.0)) + 0.0
    same_bits(of_pairs[at], format.bits(wanted), *pairs)


def test_the_lesser_and_the_greater_of_two(format: Format, pairs: list[Any], of_pairs: Any) -> None:
    a, b = pairs
    nan_a, nan_b = (numpy.isnan(format.numbers(bits)) for bits in pairs)
    least = numpy.where(format.order(a) < format.order(b), a, b)
    most = numpy.where(format.order(a) < format.order(b), b, a)
    for at, chosen in ((27, least), (28, most), (31, least)):  # a NaN gives way
        wanted = numpy.where(nan_a & nan_b, 0x7FFF, numpy.where(nan_a, b, numpy.where(nan_b, a, chosen)))
        same_bits(of_pairs[at], wanted, a, b)
    for at, chosen in ((29, least), (30, most), (32, most)):  # a NaN prevails
        same_bits(of_pairs[at], numpy.where(nan_a | nan_b, 0x7FFF, chosen), a, b)


def hard_to_fuse(format: Format) -> list[Any]:
    """a * b that lies in the middle of two numbers, and a c far below that decides."""
    draw = numpy.random.default_rng(4)
    fields = draw.integers(0, 1 << format.fraction, (2, 400_000)) | (format.top << format.fraction)
    a, b = (row.astype(numpy.uint16) for row in fields)
    product = format.numbers(a) * format.numbers(b)
    step = numpy.ldexp(1.0, numpy.frexp(product)[1] - 1 - format.fraction)
    tie = numpy.flatnonzero(product / step % 1 == 0.5)[:1500]
    c = draw.integers(1, 1 << format.fraction + 1, len(tie)) | (draw.integers(0, 2, len(tie)) << 15)
    return [a[tie], b[tie], c.astype(numpy.uint16)]


def test_a_fused_multiply_add_is_rounded_once(format: Format, half: Library) -> None:
    some, close = operands(format, 3, many=4000), close_operands(format, many=4000)
    hard = hard_to_fuse(format)
    assert len(hard[0]) > 500
    cancelling = [close[0], format.bits(numpy.full(4000, 1 + 2.0**-format.fraction)), close[1]]
    x = [numpy.concatenate(bits) for bits in zip(some, cancelling, hard, strict=True)]
    a, b, c = (format.numbers(bits) for bits in x)
    with numpy.errstate(all="ignore"):
        wanted = a * b + c  # right for infinities, NaN and the sign of 0
    for i in numpy.flatnonzero(numpy.isfinite(a) & numpy.isfinite(b) & numpy.isfinite(c)):
        exact = Fraction(a[i]) * Fraction(b[i]) + Fraction(c[i])
        if exact:
            wanted[i] = format.rounded_exactly(exact)
    given = results(half, "fused", 4, numpy.uint16, *x)
    same_bits(given[0], format.bits(wanted), a, b, c)
    # Rounded twice, it would be another number.
    with numpy.errstate(all="ignore"):
        twice = format.rounded(format.numbers(format.rounded(a * b)) + c)
    assert (twice != given[0]).sum() > 500
    saturated = numpy.where(numpy.isnan(wanted), 0.0, numpy.clip(wanted, 0.0, 1.0)) + 0.0
    same_bits(given[2], format.bits(saturated), a, b, c)
    same_bits(given[3], format.bits(numpy.where(wanted <= 0, 0.0, wanted)), a, b, c)
    swapped = results(half, "fused", 4, numpy.uint16, x[1], x[0], x[2])
    same_bits(given[1], swapped[0], a, b, c)


FUNCTIONS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.exp, torch.exp2, lambda x: 10.0**x, torch.log, torch.log2, torch.log10, torch.sqrt,
    lambda x: 1 / torch.sqrt(x), lambda x: 1 / x, torch.sin, torch.cos, torch.tanh, torch.floor, torch.ceil,
    torch.round, torch.trunc,
]  # fmt: skip


def test_functions_give_the_nearest_number(format: Format, half: Library) -> None:
    x = format.numbers(ALL_BITS)
    given = results(half, "functions", 24, numpy.uint16, ALL_BITS)
    for of_name, function in zip(given, FUNCTIONS, strict=False):
        same_bits(of_name, format.rounded(function(torch.from_numpy(x)).numpy()), x)
    for at in (16, 18, 23):
        same_bits(given[at], ALL_BITS ^ 0x8000)
    same_bits(given[17], ALL_BITS & 0x7FFF)
    same_bits(given[19], ALL_BITS)
    for of_pair, of_one in ((20, 0), (21, 4), (22, 7)):
        same_bits(given[of_pair], given[of_one])


def test_comparisons_of_nan_hold_where_the_name_ends_in_u(format: Format, half: Library, pairs: list[Any]) -> None:
    a, b = (format.numbers(bits) for bits in pairs)
    nan = numpy.isnan(a) | numpy.isnan(b)
    held = [a == b, (a != b) & ~nan, a < b, a <= b, a > b, a >= b]
    held += [x | nan for x in held]
    held += [a == b, a != b, a < b, a <= b, a > b, a >= b]
    held += [a == b, numpy.zeros_like(nan), a != b, a == b]  # of (a, b) and (b, a)
    held += [numpy.ones_like(nan)] * 2
    held += [numpy.isnan(a), numpy.isinf(a), a == -numpy.inf]
    given = numpy.zeros(len(a), numpy.uint32)
    half("compare", -(-len(a) // 256), 256, *pairs, given, len(a))
    for at, wanted in enumerate(held):
        same_bits(given >> at & 1, wanted.astype(numpy.uint32), a, b)


# --- In a kernel -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checked_half(format: Format, build: Callable[..., Library]) -> Library:
    return build(format.text(), checks=True)


def test_a_number_comes_through_memory_and_shuffles_unchanged(format: Format, checked_half: Library) -> None:
    x = ALL_BITS[::64].copy()
    x[numpy.isnan(format.numbers(x))] = 0  # adding 1 to a NaN does not keep its bits
    out = numpy.zeros((9, len(x)), numpy.uint16)
    checked_half("move", len(x) // 64, 64, x, out, len(x))
    first, second = x[numpy.arange(len(x)) & ~1], x[numpy.arange(len(x)) | 1]
    for at, wanted in enumerate([x, x, x, x, x[numpy.arange(len(x)) ^ 1], x, first, second, x]):
        same_bits(out[at], wanted)


def test_atomic_sums_lose_nothing(format: Format, checked_half: Library) -> None:
    n = 256  # beyond, bfloat16 has no odd numbers
    sums, pair, before = numpy.zeros(1, numpy.uint16), numpy.zeros(2, numpy.uint16), numpy.zeros(n, numpy.uint16)
    checked_half("add_ones", 8, 32, sums, pair, before, n)
    assert format.numbers(sums).tolist() == [n] and format.numbers(pair).tolist() == [n, -n]
    assert sorted(format.numbers(before)) == list(range(n))


def test_the_same_text_is_cuda(format: Format) -> None:
    pytest.importorskip("cuda.core", reason="NVRTC is not installed")
    opsmith.cuda_source(format.text()).move.compile(arch="sm_90")


def test_what_nvcc_finds_ambiguous_is_not_taken(format: Format) -> None:
    text = f"#include <cuda_bf16.h>\n{format.type} f({format.type} x) {{ return x + 1.0f; }}"
    assert "ambiguous overload" in compile_text(text, "-fsyntax-only").stderr


def test_operators_and_conversions_can_be_left_out_as_with_nvcc(format: Format) -> None:
    word = "HALF" if format.word == "half" else "BFLOAT16"
    flags = ["-fsyntax-only", f"-D__CUDA_NO_{word}_OPERATORS__", f"-D__CUDA_NO_{word}_CONVERSIONS__"]
    with_names = f"{{ return __hfma(x, x, __float2{format.word}(1.0f)); }}"
    with_signs = "{ return x * x; }"
    for body, taken in ((with_names, True), (with_signs, False)):
        text = f"#include <cuda_bf16.h>\n{format.type} f({format.type} x) {body}"
        assert (compile_text(text, *flags).returncode == 0) is taken


@pytest.mark.gpu
@pytest.mark.parametrize("word", FORMATS)
def test_a_gpu_gives_the_same_bits(word: str, build: Callable[..., Library]) -> None:
    format = FORMATS[word]
    emulated, on_gpu = build(format.text(), checks=False), opsmith.cuda_source(format.text())
    pairs, triples, x = operands(format, 2), operands(format, 3), floats(format)
    with numpy.errstate(invalid="ignore"):
        between = numpy.nextafter(x.astype(numpy.float64), numpy.inf)
    integers = numpy.random.default_rng(1).integers(-(2**63), 2**63, 10_000)
    for kernel, count, type, inputs in (
        ("widen", 5, numpy.float32, [ALL_BITS]), ("narrow", 10, numpy.uint16, [x]),
        ("narrow_double", 2, numpy.uint16, [between]),
        ("from_integers", 12, numpy.uint16, [integers]), ("to_integers", 14, numpy.int64, [ALL_BITS]),
        ("functions", 24, numpy.uint16, [ALL_BITS]), ("binary", 33, numpy.uint16, pairs),
        ("fused", 4, numpy.uint16, triples),
    ):  # fmt: skip
        wanted = results(emulated, kernel, count, type, *inputs)
        tensors = [
            (format.tensor(array) if array.dtype == numpy.uint16 else torch.from_numpy(array)).cuda()
            for array in (*inputs, wanted.reshape(-1))
        ]
        getattr(on_gpu, kernel)[-(-len(inputs[0]) // 256), 256](*tensors, len(inputs[0]))
        raw = tensors[-1].cpu()
        given = (raw.view(torch.int16).numpy() if type is numpy.uint16 else raw.numpy()).view(type).reshape(count, -1)
        # Quotients and functions: within a unit in the last place.
        inexact = {"functions": range(24), "binary": range(18, 23)}.get(kernel, ())
        for at in range(count):
            if type is not numpy.uint16:
                numpy.testing.assert_array_equal(given[at], wanted[at], err_msg=f"{kernel} {at}")
                continue
            nan = numpy.isnan(format.numbers(wanted[at]))
            numpy.testing.assert_array_equal(numpy.isnan(format.numbers(given[at])), nan)
            away = numpy.abs(format.order(given[at]) - format.order(wanted[at]))[~nan]
            assert away.max(initial=0) <= (at in inexact), (
                f"{kernel} {at}: {away.max()} units, {(away > 0).sum()} times"
            )


def test_limits_of_the_16_bit_types_are_torchs(format: Format, build: Callable[..., Library]) -> None:
    limits = f"cuda::std::numeric_limits<{format.type}>"
    names = ["max", "lowest", "min", "epsilon", "infinity", "quiet_NaN", "denorm_min"]
    put = "".join(f"  x[{i}] = {limits}::{name}();\n" for i, name in enumerate(names))
    library = build(
        "#include <cuda/std/limits>\n__global__ void all(float* x) {\n" + put + f"  x[7] = {limits}::digits;\n}}\n"
    )
    x = numpy.zeros(8, numpy.float32)
    library("all", 1, 1, x)
    info = torch.finfo(format.dtype)
    wanted = [info.max, info.min, info.tiny, info.eps, math.inf, math.nan, info.smallest_normal * info.eps]
    numpy.testing.assert_array_equal(x, numpy.array([*wanted, format.fraction + 1], numpy.float32))
