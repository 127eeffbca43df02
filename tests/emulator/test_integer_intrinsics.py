"""Integer functions, on whole words and on their halves and bytes: every bit what Python's own integers give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
import torch

import opsmith

from .intrinsic_kernels import Group, applied, check, source

_RANDOM = numpy.random.default_rng(20)
_EDGES = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFF8000,
    0x80008000,
    0x80808080,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
]
_EDGES += [0xFFFFFF, 0x1000000, 0x00800000]


def words(seed: int) -> Any:
    """Numbers of 32 bits: edges, random ones, and ones whose bytes are edges."""
    random = numpy.random.default_rng(seed)
    bytes_ = random.choice([0, 1, 0x7F, 0x80, 0xFF], (300, 4)).astype(numpy.uint32)
    packed = (bytes_ << numpy.array([0, 8, 16, 24], numpy.uint32)).sum(1)
    drawn = [*_EDGES, *random.integers(0, 2**32, 300).tolist(), *packed.tolist()]
    return random.permutation(numpy.array(drawn, numpy.uint64)).astype(numpy.uint32)


def signed(word: int, bits: int = 32) -> int:
    return word - (1 << bits) if word >> (bits - 1) & 1 else word


# --- Whole words -----------------------------------------------------------------------------------------------------


def _permuted_bytes(a: int, b: int, selector: int) -> int:
    pool = [a >> 8 * i & 0xFF for i in range(4)] + [b >> 8 * i & 0xFF for i in range(4)]
    result = 0
    for i in range(4):
        result |= pool[selector >> 4 * i & 7] << 8 * i
    return result


def _dot(a: int, b: int, c: int, bits_a: int, first: int, count: int, is_signed: bool) -> int:
    def part(word: int, number: int, bits: int) -> int:
        value = word >> bits * number & (1 << bits) - 1
        return signed(value, bits) if is_signed else value

    return c + sum(part(a, i, bits_a) * part(b, first + i, 8) for i in range(count))


def _24_bits(word: int) -> int:
    return signed(word & 0xFFFFFF, 24)


ONE: dict[str, Callable[[int], int]] = {
    "__popc": lambda a: a.bit_count(),
    "__clz": lambda a: 32 - a.bit_length(),
    "__ffs": lambda a: (a & -a).bit_length(),
    "__brev": lambda a: int(f"{a:032b}"[::-1], 2),
    "__nv_bswap32": lambda a: int.from_bytes(a.to_bytes(4, "little"), "big"),
}
TWO: dict[str, Callable[[int, int], int]] = {
    "__mulhi": lambda a, b: signed(a) * signed(b) >> 32,
    "__umulhi": lambda a, b: a * b >> 32,
    "__mul24": lambda a, b: _24_bits(a) * _24_bits(b),
    "__umul24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "__hadd": lambda a, b: signed(a) + signed(b) >> 1,
    "__rhadd": lambda a, b: signed(a) + signed(b) + 1 >> 1,
    "__uhadd": lambda a, b: a + b >> 1,
    "__urhadd": lambda a, b: a + b + 1 >> 1,
    "umin": min,
    "umax": max,
}
THREE: dict[str, Callable[[int, int, int], int]] = {
    "__sad": lambda a, b, c: abs(signed(a) - signed(b)) + c,
    "__usad": lambda a, b, c: abs(a - b) + c,
    "__byte_perm": _permuted_bytes,
    "__funnelshift_l": lambda a, b, c: (b << 32 | a) << (c & 31) >> 32,
    "__funnelshift_lc": lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32,
    "__funnelshift_r": lambda a, b, c: (b << 32 | a) >> (c & 31),
    "__funnelshift_rc": lambda a, b, c: (b << 32 | a) >> min(c, 32),
    "__vimax3_s32": lambda a, b, c: max(map(signed, (a, b, c))),
    "__vimin3_s32": lambda a, b, c: min(map(signed, (a, b, c))),
    "__vimax3_u32": max,
    "__vimin3_u32": min,
    "__vimax3_s32_relu": lambda a, b, c: max(*map(signed, (a, b, c)), 0),
    "__vimin3_s32_relu": lambda a, b, c: max(min(map(signed, (a, b, c))), 0),
    "__viaddmax_s32": lambda a, b, c: max(signed(a + b & 0xFFFFFFFF), signed(c)),
    "__viaddmin_s32": lambda a, b, c: min(signed(a + b & 0xFFFFFFFF), signed(c)),
    "__viaddmax_s32_relu": lambda a, b, c: max(signed(a + b & 0xFFFFFFFF), signed(c), 0),
    "__viaddmin_s32_relu": lambda a, b, c: max(min(signed(a + b & 0xFFFFFFFF), signed(c)), 0),
    "__viaddmax_u32": lambda a, b, c: max(a + b & 0xFFFFFFFF, c),
    "__viaddmin_u32": lambda a, b, c: min(a + b & 0xFFFFFFFF, c),
    "__dp4a": lambda a, b, c: _dot(a, b, c, 8, 0, 4, False),
    "__dp2a_lo": lambda a, b, c: _dot(a, b, c, 16, 0, 2, False),
    "__dp2a_hi": lambda a, b, c: _dot(a, b, c, 16, 2, 2, False),
}
SIGNED_DOTS: dict[str, Callable[[int, int, int], int]] = {
    "__dp4a": lambda a, b, c: _dot(a, b, c, 8, 0, 4, True),
    "__dp2a_lo": lambda a, b, c: _dot(a, b, c, 16, 0, 2, True),
    "__dp2a_hi": lambda a, b, c: _dot(a, b, c, 16, 2, 2, True),
}

# --- Halves and bytes ------------------------------------------------------------------------------------------------


def _within(value: int, bits: int, is_signed: bool) -> int:
    least, greatest = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(value, least), greatest)


# By the name between __v and the number of parts: what is made of the parts, and how these are read.
OF_ONE_PART: dict[str, tuple[Callable[[int, int], int], bool]] = {
    "abs": (lambda a, _: abs(a), True),
    "absss": (lambda a, bits: _within(abs(a), bits, True), True),
    "neg": (lambda a, _: -a, True),
    "negss": (lambda a, bits: _within(-a, bits, True), True),
}
OF_TWO_PARTS: dict[str, tuple[Callable[[int, int, int], int], bool]] = {
    "add": (lambda a, b, _: a + b, False),
    "addss": (lambda a, b, bits: _within(a + b, bits, True), True),
    "addus": (lambda a, b, bits: _within(a + b, bits, False), False),
    "sub": (lambda a, b, _: a - b, False),
    "subss": (lambda a, b, bits: _within(a - b, bits, True), True),
    "subus": (lambda a, b, bits: _within(a - b, bits, False), False),
    # Halves are rounded away from zero, as the PTX that nvcc makes of it does.
    "avgs": (lambda a, b, _: (a + b + 1) // 2 if a + b >= 0 else (a + b) // 2, True),
    "avgu": (lambda a, b, _: (a + b + 1) // 2, False),
    "haddu": (lambda a, b, _: (a + b) // 2, False),
    "absdiffs": (lambda a, b, _: abs(a - b), True),
    "absdiffu": (lambda a, b, _: abs(a - b), False),
    "maxs": (lambda a, b, _: max(a, b), True),
    "maxu": (lambda a, b, _: max(a, b), False),
    "mins": (lambda a, b, _: min(a, b), True),
    "minu": (lambda a, b, _: min(a, b), False),
}
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "ge": lambda a, b: a >= b, "gt": lambda a, b: a > b,
    "le": lambda a, b: a <= b, "lt": lambda a, b: a < b,
}  # fmt: skip
for _name, _holds in _COMPARED.items():
    for _sign in ("",) if _name in ("eq", "ne") else ("s", "u"):
        OF_TWO_PARTS[f"cmp{_name}{_sign}"] = (lambda a, b, _, holds=_holds: -int(holds(a, b)), _sign == "s")
        OF_TWO_PARTS[f"set{_name}{_sign}"] = (lambda a, b, _, holds=_holds: int(holds(a, b)), _sign == "s")


def parts_of(word: int, bits: int, is_signed: bool) -> list[int]:
    found = [word >> at & (1 << bits) - 1 for at in range(0, 32, bits)]
    return [signed(part, bits) for part in found] if is_signed else found


def of_parts(function: Callable[..., int], bits: int, is_signed: bool, *given: int) -> int:
    parts = zip(*(parts_of(word, bits, is_signed) for word in given), strict=True)
    return sum((function(*each, bits) & (1 << bits) - 1) << bits * i for i, each in enumerate(parts))


for _count, _bits in ((2, 16), (4, 8)):
    for _name, (_function, _is_signed) in OF_ONE_PART.items():
        ONE[f"__v{_name}{_count}"] = lambda a, f=_function, n=_bits, s=_is_signed: of_parts(f, n, s, a)
    for _name, (_function, _is_signed) in OF_TWO_PARTS.items():
        TWO[f"__v{_name}{_count}"] = lambda a, b, f=_function, n=_bits, s=_is_signed: of_parts(f, n, s, a, b)
    for _sign in ("s", "u"):
        TWO[f"__vsad{_sign}{_count}"] = lambda a, b, n=_bits, s=_sign == "s": sum(
            abs(x - y) for x, y in zip(parts_of(a, n, s), parts_of(b, n, s), strict=True)
        )
for _sign in ("s", "u"):
    for _choice, _of in (("max", max), ("min", min)):
        THREE[f"__vi{_choice}3_{_sign}16x2"] = lambda a, b, c, of=_of, s=_sign == "s": of_parts(
            lambda *x: of(x[:3]), 16, s, a, b, c
        )
        THREE[f"__viadd{_choice}_{_sign}16x2"] = lambda a, b, c, of=_of, s=_sign == "s": of_parts(
            lambda x, y, z, _: of(parts_of(x + y & 0xFFFF, 16, s)[0], z), 16, s, a, b, c
        )
    if _sign == "s":
        for _choice, _of in (("max", max), ("min", min)):
            TWO[f"__vi{_choice}_s16x2_relu"] = lambda a, b, of=_of: of_parts(
                lambda x, y, _: max(of(x, y), 0), 16, True, a, b
            )
            TWO[f"__vi{_choice}_s32_relu"] = lambda a, b, of=_of: max(of(signed(a), signed(b)), 0)
            THREE[f"__vi{_choice}3_s16x2_relu"] = lambda a, b, c, of=_of: of_parts(
                lambda x, y, z, _: max(of(x, y, z), 0), 16, True, a, b, c
            )
            THREE[f"__viadd{_choice}_s16x2_relu"] = lambda a, b, c, of=_of: of_parts(
                lambda x, y, z, _: max(of(signed(x + y & 0xFFFF, 16), z), 0), 16, True, a, b, c
            )

# --- The tests -------------------------------------------------------------------------------------------------------

GROUPS = [
    Group("of_one", "unsigned", ("unsigned",), list(ONE)),
    Group("of_two", "unsigned", ("unsigned",) * 2, list(TWO)),
    Group("of_three", "unsigned", ("unsigned",) * 3, list(THREE)),
    Group("of_signed", "int", ("int",) * 3, list(SIGNED_DOTS)),
]
SOURCE = source(GROUPS)


def given_words(group: Group) -> list[Any]:
    values = [words(seed) for seed, _ in enumerate(group.parameters)]
    if len(values) == 3:
        values[2][:200] %= 70  # shifts
        values[0][200:230] = values[1][200:230]
    return values


@pytest.mark.parametrize(
    ("number", "functions"),
    list(enumerate([ONE, TWO, THREE, SIGNED_DOTS])),
    ids=["one", "two", "three", "signed dot products"],
)
def test_functions_of_words_give_what_pythons_integers_do(
    number: int, functions: dict[str, Callable[..., int]]
) -> None:
    group = GROUPS[number]
    values = given_words(group)
    with opsmith.emulate():
        given = applied(SOURCE, group, *values)
    rows = list(zip(*(value.tolist() for value in values), strict=True))
    kind = numpy.int32 if group.result == "int" else numpy.uint32
    wanted = {
        name: numpy.array([function(*row) & 0xFFFFFFFF for row in rows], numpy.uint64).astype(kind)
        for name, function in functions.items()
    }
    check(given, wanted, values)


OF_64_BITS = opsmith.cuda_source(r"""
__global__ void k(const unsigned long long* x, const unsigned long long* y, unsigned long long* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned long long a = x[i], b = y[i];
  const long long c = (long long)a, d = (long long)b;
  const unsigned long long results[] = {
      (unsigned long long)__popcll(a), (unsigned long long)__clzll(c), (unsigned long long)__ffsll(c), __brevll(a),
      __nv_bswap64(a), __umul64hi(a, b), (unsigned long long)__mul64hi(c, d), ullmin(a, b), ullmax(a, b),
      (unsigned long long)llmin(c, d), (unsigned long long)llmax(c, d), __nv_bswap16((unsigned short)a)};
  for (int k = 0; k < 12; ++k) out[k * n + i] = results[k];
}
""")
_64 = 2**64


def _results_of_64_bits(a: int, b: int) -> list[int]:
    c, d = signed(a, 64), signed(b, 64)
    swapped = int.from_bytes((a & 0xFFFF).to_bytes(2, "little"), "big")
    return [
        a.bit_count(), 64 - a.bit_length(), (a & -a).bit_length(), int(f"{a:064b}"[::-1], 2),
        int.from_bytes(a.to_bytes(8, "little"), "big"), a * b >> 64, (c * d >> 64) % _64, min(a, b), max(a, b),
        min(c, d) % _64, max(c, d) % _64, swapped,
    ]  # fmt: skip


def _pairs_of_64_bits() -> list[tuple[int, int]]:
    edges = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF]
    drawn = _RANDOM.integers(0, _64, (100, 2), numpy.uint64).tolist()
    return [(a, b) for a in edges for b in edges] + [(int(a), int(b)) for a, b in drawn]


def test_functions_of_64_bits_give_what_pythons_integers_do() -> None:
    pairs = _pairs_of_64_bits()
    x, y = (torch.from_numpy(numpy.array(column, numpy.uint64)) for column in zip(*pairs, strict=True))
    out = torch.zeros(12, len(pairs), dtype=torch.uint64)
    with opsmith.emulate():
        OF_64_BITS.k[-(-len(pairs) // 64), 64](x, y, out, len(pairs))
    assert out.numpy().T.tolist() == [_results_of_64_bits(a, b) for a, b in pairs]


def _nth_set(mask: int, base: int, offset: int) -> int:
    """PTX's fns, by its words: the |offset|-th set bit from `base` on, upwards or downwards; 0 asks for base itself."""
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    order: Sequence[int] = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [at for at in order if mask >> at & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF


def test_the_nth_set_bit_is_found_in_both_directions() -> None:
    cu = opsmith.cuda_source(
        "__global__ void k(const unsigned* m, const unsigned* b, const int* o, unsigned* out) {\n"
        "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n  out[i] = __fns(m[i], b[i], o[i]);\n}\n"
    )
    masks = _RANDOM.choice([0, 1, 0x80000000, 0xFFFFFFFF, *_RANDOM.integers(0, 2**32, 30).tolist()], 512)
    bases, offsets = _RANDOM.integers(0, 32, 512), _RANDOM.integers(-8, 9, 512)
    given = [torch.from_numpy(each.astype(kind)) for each, kind in
             ((masks, numpy.uint32), (bases, numpy.uint32), (offsets, numpy.int32))]  # fmt: skip
    out = torch.zeros(512, dtype=torch.uint32)
    with opsmith.emulate():
        cu.k[4, 128](*given, out)
    wanted = [_nth_set(int(m), int(b), int(o)) for m, b, o in zip(masks, bases, offsets, strict=True)]
    assert out.tolist() == wanted


CHOICES = opsmith.cuda_source(r"""
__global__ void k(const unsigned* x, const unsigned* y, unsigned* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned a = x[i], b = y[i];
  bool first[12];
  const unsigned results[] = {
      (unsigned)__vibmax_s32((int)a, (int)b, &first[0]), (unsigned)__vibmin_s32((int)a, (int)b, &first[1]),
      __vibmax_u32(a, b, &first[2]), __vibmin_u32(a, b, &first[3]),
      __vibmax_s16x2(a, b, &first[4], &first[5]), __vibmin_s16x2(a, b, &first[6], &first[7]),
      __vibmax_u16x2(a, b, &first[8], &first[9]), __vibmin_u16x2(a, b, &first[10], &first[11])};
  unsigned comparisons = 0;
  for (int k = 0; k < 12; ++k) comparisons |= (unsigned)first[k] << k;
  for (int k = 0; k < 8; ++k) out[k * n + i] = results[k];
  out[8 * n + i] = comparisons;
}
""")


def _choices(a: int, b: int) -> list[int]:
    results, comparisons = [], []
    for is_signed in (True, False):
        x, y = (signed(a), signed(b)) if is_signed else (a, b)
        results += [max(x, y) % 2**32, min(x, y) % 2**32]
        comparisons += [x >= y, x <= y]
    for is_signed in (True, False):
        for of, holds in ((max, lambda p, q: p >= q), (min, lambda p, q: p <= q)):
            low, high = zip(parts_of(a, 16, is_signed), parts_of(b, 16, is_signed), strict=True)
            results.append(of_parts(lambda p, q, _, of=of: of(p, q), 16, is_signed, a, b))
            comparisons += [holds(*high), holds(*low)]
    return [*results, sum(each << k for k, each in enumerate(comparisons))]


def test_a_choice_is_reported() -> None:
    a, b = words(1), words(2)
    b[:100] = a[:100]
    out = torch.zeros(9, len(a), dtype=torch.uint32)
    with opsmith.emulate():
        CHOICES.k[-(-len(a) // 64), 64](torch.from_numpy(a), torch.from_numpy(b), out, len(a))
    assert out.numpy().T.tolist() == [_choices(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(len(GROUPS)))
def test_a_gpu_gives_the_same_bits(number: int) -> None:
    group = GROUPS[number]
    values = given_words(group)
    with opsmith.emulate():
        emulated = applied(SOURCE, group, *values)
    check(applied(SOURCE, group, *values, device="cuda"), emulated, values)


@pytest.mark.gpu
def test_a_gpu_makes_the_same_choices() -> None:
    a, b = words(1), words(2)
    out = torch.zeros(9, len(a), dtype=torch.uint32).cuda()
    CHOICES.k[-(-len(a) // 64), 64](torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), out, len(a))
    wanted = [_choices(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert out.cpu().numpy().T.tolist() == wanted
