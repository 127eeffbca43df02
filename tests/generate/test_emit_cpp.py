"""The drivers of CPU kernels: every path, mode and role, on tails and short rows, against torch; and their text."""

from __future__ import annotations

import re

import pytest
import torch
from launch import pieces

from opsmith.generate import emit_cpp, tuning
from opsmith.generate.expression import Program
from opsmith.launch.planner import LayoutClass

from . import programs
from .host_cpp import INCLUDE, Kernels, Launch

ORDER = ["DEFAULT", "AVX2", "AVX512"]
NATIVE = emit_cpp.capability() if emit_cpp.capability() in ORDER else "DEFAULT"
PROCESSORS = ORDER[: ORDER.index(NATIVE) + 1]
FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


# Every dtype on this machine's vectors, float32 on those of every processor that this one can stand in for.
VECTORS = [(NATIVE, dtype) for dtype in FLOATING] + [(each, torch.float32) for each in PROCESSORS[:-1]]


@pytest.fixture
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    processor, each = request.param
    monkeypatch.setattr(emit_cpp, "capability", lambda: processor)
    return each


on_all_vectors = pytest.mark.parametrize(
    "dtype", VECTORS, indirect=True, ids=[f"{processor}-{str(each)[6:]}" for processor, each in VECTORS]
)


def whole_numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small ones: sums of their products are exact in every order."""
    return torch.randint(-3, 4, shape).to(dtype)


def sums_program(dtype: torch.dtype, sums: int) -> Program:
    """x * y + y, and sums of x * y."""
    return programs.build(
        "test::sums",
        [dtype, dtype],
        lambda builder, x, y: [x * y + y, *[x * y] * sums],
        [("z", dtype, None), *((f"sum_{number}", dtype, number) for number in range(sums))],
    )


def check(launch: Launch, kernels: Kernels, cuts: tuple[int, ...] = (), chunk: int | None = None) -> None:
    """Held against torch, exactly: what is computed here are whole numbers."""
    x, y = (tensor.expand(launch.shape).double() for tensor in launch.reads)
    full = x * y + y
    for result, kept in zip(launch.run(kernels, cuts, chunk), launch.kept, strict=True):
        if kept is None:
            assert torch.equal(result.double(), full), launch
        elif isinstance(kept, tuple):
            reduced = [d for d in range(len(launch.shape)) if d not in kept]
            expected = (x * y).sum(reduced, keepdim=True) if reduced else x * y
            assert torch.equal(result.double(), expected.to(result.dtype).double()), (launch, kept)


# --- stream ---------------------------------------------------------------------------------------------------


@on_all_vectors
def test_a_stream_computes_every_element_once_tails_too(dtype: torch.dtype) -> None:
    sizes = [*range(1, 71), 1000, 4099]
    operands = [[whole_numbers(size, dtype=dtype) for _ in range(2)] for size in sizes]
    launches = [Launch(sums_program(dtype, 0), (s,), o, [None]) for s, o in zip(sizes, operands, strict=True)]
    kernels = Kernels(launches=launches)
    for launch in launches:
        check(launch, kernels)
        check(launch, kernels, cuts=(1, 18, 20, 64))


def strided_operands(shape: tuple[int, ...], dtype: torch.dtype) -> list[list[torch.Tensor]]:
    rest = shape[:-1]
    full = whole_numbers(*shape, dtype=dtype)
    apart = whole_numbers(*rest, shape[-1] * 2, dtype=dtype)[..., ::2]
    turned = whole_numbers(*reversed(shape), dtype=dtype).permute(*reversed(range(len(shape))))
    row, column = whole_numbers(shape[-1], dtype=dtype), whole_numbers(*rest, 1, dtype=dtype)
    one = whole_numbers(1, dtype=dtype)
    return [[full, row], [full, column], [apart, full], [turned, one], [row, column], [one, full], [turned, apart]]


STRIDED_SHAPES = [(3, n) for n in (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 70)] + [
    (70, 3), (5, 4, 3), (4, 3, 33), (2, 3, 4, 5), (3, 1, 20), (65, 1)
]  # fmt: skip


@on_all_vectors
def test_a_stream_reads_and_writes_by_strides(dtype: torch.dtype) -> None:
    launches = [
        Launch(sums_program(dtype, 0), shape, operands, [None], linear=number != 1)
        for shape in STRIDED_SHAPES
        for number, operands in enumerate(strided_operands(shape, dtype))
        if len(shape) == 2 or number in (0, 6)  # more dimensions are more kernels to compile
    ]
    kernels = Kernels(launches=launches)
    for launch in launches:
        check(launch, kernels)
        check(launch, kernels, cuts=(1, 5, 30, 31, 100))


def test_a_stream_takes_arguments_and_computes_what_depends_on_them_alone_once() -> None:
    program = programs.build(
        "test::scaled",
        [torch.float32],
        lambda builder, x, scale, shift, flag: [
            flag.where(x * (scale * scale).to(torch.float32) + (shift - 5).to(torch.float32), x)
        ],
        [("output", torch.float32, None)],
        scalars=[("scale", torch.float64), ("shift", torch.int64), ("flag", torch.bool)],
    )
    x = torch.randn(100)
    for flag in (True, False):
        launch = Launch(program, (100,), [x], [None], scalars=(1.5, -7, flag))
        (output,) = launch.run(Kernels(launches=[launch]))
        assert torch.equal(output, x * 2.25 - 12 if flag else x)
    text = emit_cpp.text(program, launch.layout)
    assert text.count("scale * scale") == 1 and f"OPSMITH_LANES {16 if NATIVE == 'AVX512' else 8}" in text


def test_a_result_may_have_the_name_of_an_input() -> None:
    program = programs.build(
        "test::two",
        [torch.float32],
        lambda builder, x: [x + 1, x > 0],
        [("x", torch.float32, None), ("x", torch.bool, None)],
    )
    x = torch.randn(5, 40)
    launch = Launch(program, (5, 40), [x], [None, None])
    one, two = launch.run(Kernels(launches=[launch]))
    assert torch.equal(one, x + 1) and torch.equal(two, x > 0)


def test_a_result_that_no_element_enters() -> None:
    program = programs.build(
        "test::constant",
        [torch.float32],
        lambda builder, x, value: [value, value.to(torch.float32) + 0 * x],
        [("y", torch.float64, None), ("z", torch.float32, None)],
        scalars=[("value", torch.float64)],
    )
    launch = Launch(program, (35,), [torch.ones(35)], [None, None], scalars=(0.1,))
    y, z = launch.run(Kernels(launches=[launch]))
    assert torch.equal(y, torch.full((35,), 0.1, dtype=torch.float64)) and torch.equal(z, torch.full((35,), 0.1))


# --- reductions -----------------------------------------------------------------------------------------------


def reduction_operands(shape: tuple[int, ...], dtype: torch.dtype) -> list[list[torch.Tensor]]:
    chosen = (0, 1, 3, 6) if len(shape) == 2 else (0, 6)
    return [strided_operands(shape, dtype)[number] for number in chosen]


SEGMENTS: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = [
    *(((n,), [(), ()]) for n in (1, 15, 16, 17, 64, 70, 2000)),
    *(((3, n), [(0,), ()]) for n in (*range(1, 35), 63, 64, 65, 70, 1500)),
    ((4, 5, 33), [(1,), ()]),
    ((4, 5, 3), [(1,), (1,)]),
    ((7, 2, 3, 20), [(0, 2), ()]),
    ((300, 2), [(0,), ()]),
]


@on_all_vectors
def test_a_segment_sums_along_rows(dtype: torch.dtype) -> None:
    launches = [
        Launch(sums_program(dtype, 2), shape, operands, [None, *kept])
        for shape, kept in SEGMENTS
        for operands in reduction_operands(shape, dtype)
    ]
    assert all(launch.path == "segment" for launch in launches)
    kernels = Kernels(launches=launches)
    for launch in launches:
        check(launch, kernels)
        check(launch, kernels, cuts=(1, 2, 5), chunk=64)


COLUMNS: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = [
    *(((5, n), [(1,), ()]) for n in (*range(1, 35), 63, 64, 65, 70, 1023, 1024, 1025, 1039, 1040, 2100)),
    *(((n, 20), [(1,), ()]) for n in (1, 2, 3, 4, 7, 8, 9, 100)),
    *(((n, 3), [(1,), ()]) for n in (1, 15, 16, 17, 100)),
    ((3, 4, 40), [(0, 2), (2,)]),
    ((3, 4, 40), [(0, 2), (0,)]),
    ((3, 4, 1050), [(0, 2), (0,)]),
    ((3, 4, 1050), [(2,), ()]),
    ((3, 4, 5), [(0, 2), (2,)]),
    ((3, 4, 5), [(0, 2), (0,)]),
    ((2, 3, 4, 20), [(1, 3), (1,)]),
    ((2, 3, 4, 20), [(1, 3), ()]),
]


@on_all_vectors
def test_a_column_sums_down_rows(dtype: torch.dtype) -> None:
    launches = [
        Launch(sums_program(dtype, 2), shape, operands, [None, *kept])
        for shape, kept in COLUMNS
        for operands in reduction_operands(shape, dtype)
    ]
    assert all(launch.path == "column" for launch in launches)
    kernels = Kernels(launches=launches)
    for launch in launches:
        check(launch, kernels)
        check(launch, kernels, cuts=(1, 2, 5), chunk=16)


def test_absent_results_are_neither_computed_nor_written() -> None:
    launch = Launch(
        sums_program(torch.float32, 2), (6, 50), strided_operands((6, 50), torch.float32)[0], ["absent", (0,), "absent"]
    )
    check(launch, Kernels(launches=[launch]))
    text = emit_cpp.text(launch.program, launch.layout)
    assert "add_1" not in text and "sum_1" not in text


def test_a_sum_of_nothing_is_zero() -> None:
    launch = Launch(sums_program(torch.float32, 1), (3, 0), [torch.ones(3, 0), torch.ones(3, 0)], [None, (0,)])
    assert torch.equal(launch.run(Kernels(launches=[launch]))[1], torch.zeros(3, 1))
    launch = Launch(sums_program(torch.float32, 1), (0, 3), [torch.ones(0, 3), torch.ones(0, 3)], [None, (1,)])
    assert torch.equal(launch.run(Kernels(launches=[launch]))[1], torch.zeros(1, 3))


@pytest.mark.parametrize(("shape", "kept"), [((1_000_003,), ()), ((4001, 250), (1,)), ((250_000, 4), (1,))])
def test_sums_are_as_exact_as_torchs_and_the_same_for_every_number_of_threads(
    shape: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    x, y = torch.rand(shape), torch.ones(shape)
    launch = Launch(sums_program(torch.float32, 1), shape, [x, y], [None, kept])
    kernels = Kernels(launches=[launch])
    found = launch.run(kernels)[1].clone()
    reduced = [d for d in range(len(shape)) if d not in kept]
    expected = x.double().sum(reduced, keepdim=True)
    assert ((found - expected).abs() <= 2e-7 * expected).all()
    for cuts in ((1,), (3, 9), tuple(range(1, 30))):
        assert torch.equal(launch.run(kernels, cuts)[1], found)


@pytest.mark.parametrize("kept", [1, 3, 100, 10**6])
@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 32768, 10**6, 10**10])
def test_chunks_cover_every_element(length: int, kept: int) -> None:
    chunks, chunk_length, *_ = pieces.segment_chunks(pieces.CPU, length, kept)
    assert chunks >= 1 and (chunks - 1) * chunk_length < max(1, length) <= chunks * chunk_length
    assert chunk_length % 64 == 0 or chunks == 1
    for columns in (1, 16, 1024, 1025, 10**6):
        chunks, rows, tiles, _ = pieces.column_chunks(pieces.CPU, columns, kept, length)
        assert chunks >= 1 and (chunks - 1) * rows < max(1, length) <= chunks * rows
        assert (tiles - 1) * tuning.CPU_TILE < columns <= tiles * tuning.CPU_TILE


def test_the_header_and_the_chunks_agree_on_tiles() -> None:
    header = (INCLUDE / "opsmith" / "pointwise" / "cpu.h").read_text()
    assert f"constexpr int64_t TILE = {tuning.CPU_TILE};" in header


# --- text -----------------------------------------------------------------------------------------------------


def test_the_text_says_where_it_came_from() -> None:
    text = emit_cpp.text(programs.mish(torch.float32), LayoutClass("stream", ("linear", "linear"), 0, 0, 1, True))
    lines = text.splitlines()
    assert lines[0] == "// test::mish: every element. From ops.py:12:"
    assert lines[1].startswith("//   def scaled") and not lines[1].endswith("\\")
    assert "    const Vec<float> mul_1 = x * tanh_softplus_1;  // ops.py:13" in lines
    assert emit_cpp.entry_name(programs.mish(torch.float32)) == "opsmith_test_mish" and max(map(len, lines)) <= 120


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("wide", [torch.float64, torch.int64])
def test_eight_byte_elements_halve_the_lanes(
    wide: torch.dtype, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit_cpp, "capability", lambda: processor)
    lanes = {"DEFAULT": 4, "AVX2": 8, "AVX512": 16}[processor]
    layout = LayoutClass("stream", ("linear",) * 3, 0, 0, 1, True)
    for first, second, expected in (
        (torch.float32, torch.float32, lanes), (wide, torch.float32, lanes // 2), (wide, wide, lanes // 2)
    ):  # fmt: skip
        text = emit_cpp.text(programs.product(first, second), layout)
        assert re.search(r"OPSMITH_LANES (\d+)", text)[1] == str(expected)  # type: ignore[index]
