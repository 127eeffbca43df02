"""The drivers of CUDA kernels, run on the CPU: every path, tails and all, against torch."""

from __future__ import annotations

import pytest
import torch
from launch import pieces

from opsmith.generate import emit_cuda, tuning

from . import host_cuda, programs

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def width(*dtypes: torch.dtype) -> int:
    return pieces.pack_width([dtype.itemsize for dtype in dtypes])


# --- stream ---------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _pairs_of_any_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "EXPENSIVE", 0)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("count", [1, 3, 8, 1000, 4096, 4097, 9999])
@pytest.mark.parametrize("small", [(0, 0, 0), (0, 0, 1 << 20), (1 << 20, 0, 0)], ids=["packs", "one pack", "pairs"])
def test_a_stream_computes_every_element_once_tails_too(
    dtype: torch.dtype, count: int, small: tuple[int, int, int]
) -> None:
    x, y = torch.randn(count).to(dtype), torch.randn(count).to(dtype)
    for vector in (1, width(dtype)):
        (output,) = host_cuda.run(
            programs.product(dtype), [x, y], shape=(count,), sizes=[(count,)], vector=vector, small=small
        )
        assert torch.equal(output, x * y)


@pytest.mark.parametrize("small", [(0, 0, 0), (0, 0, 1 << 20), (1 << 20, 0, 0)], ids=["packs", "one pack", "pairs"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("vector", [1, 4])
def test_a_stream_reads_by_strides(vector: int, wide: bool, small: tuple[int, int, int]) -> None:
    shape = (6, 5, 16)
    x = torch.randn(5, 6, 32).transpose(0, 1)[:, :, ::2]  # apart
    row, column = torch.randn(16), torch.randn(6, 1, 1)  # contiguous along the innermost dimension; repeated
    program = programs.build(
        "test::strided",
        [torch.float32] * 4,
        lambda builder, x, y, z, u: [x * y + z * u],
        [("output", torch.float32, None)],
    )
    one = torch.tensor(3.0)
    (output,) = host_cuda.run(
        program, [x, row, column, one], shape=shape, sizes=[shape], vector=vector, wide=wide, small=small
    )
    assert torch.equal(output, x * row + column * one)


@pytest.mark.parametrize("vector", [1, 8])
def test_a_stream_mixes_element_sizes(vector: int) -> None:
    count = 5003
    x, y = torch.randn(count).to(torch.bfloat16), torch.randn(count)
    program = programs.product(torch.bfloat16, torch.float32)
    (output,) = host_cuda.run(program, [x, y], shape=(count,), sizes=[(count,)], vector=vector)
    assert torch.equal(output, x * y)


def test_a_stream_takes_arguments_and_computes_what_depends_on_them_alone_once() -> None:
    program = programs.build(
        "test::scaled",
        [torch.float32],
        lambda builder, x, scale, shift, flag: [
            flag.where(x * (scale * scale).to(torch.float32) + shift.to(torch.float32), x)
        ],
        [("output", torch.float32, None)],
        scalars=[("scale", torch.float64), ("shift", torch.int64), ("flag", torch.bool)],
    )
    x = torch.randn(100)
    for flag in (True, False):
        (output,) = host_cuda.run(program, [x], (1.5, -7, flag), shape=(100,), sizes=[(100,)], vector=4)
        assert torch.equal(output, x * 2.25 - 7 if flag else x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool], ids=str)
def test_a_stream_computes_with_integers_and_truth(dtype: torch.dtype) -> None:
    x = torch.randint(0, 2 if dtype is torch.bool else 100, (777,)).to(dtype)
    y = torch.randint(0, 2 if dtype is torch.bool else 100, (777,)).to(dtype)
    name = "logical_xor" if dtype is torch.bool else "bitwise_xor"
    program = programs.build(
        "test::xor", [dtype] * 2, lambda builder, x, y: [builder.apply(name, x, y)], [("output", dtype, None)]
    )
    (output,) = host_cuda.run(program, [x, y], shape=(777,), sizes=[(777,)], vector=width(dtype))
    assert torch.equal(output, x ^ y)


def test_a_stream_writes_a_transposed_result() -> None:
    program = programs.build(
        "test::two",
        [torch.float32],
        lambda builder, x: [x + 1, x > 0],
        [("x", torch.float32, None), ("y", torch.bool, None)],  # a result may have an input's name
    )
    x = torch.randn(64, 32).t()
    one, two = host_cuda.run(program, [x], shape=(32, 64), sizes=[(32, 64)] * 2, vector=1)
    assert torch.equal(one, x + 1) and torch.equal(two, x > 0)


# --- reductions -----------------------------------------------------------------------------------------------

OTHER_WAYS = [(torch.float32, True, False), (torch.bfloat16, True, False), (torch.float32, False, True)]


def reference(program_name: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    g, *wide = [tensor.double() for tensor in tensors]
    inputs = [tensor.requires_grad_() for tensor in wide]
    if program_name == "polynomial":
        x, b, c, d = inputs
        a = torch.zeros_like(b).requires_grad_()
        output = a + b * x + c * x**2 + d * x**3
        return list(torch.autograd.grad(output, [x, a, b, c, d], g))
    x, scale, shift = inputs
    return list(torch.autograd.grad(torch.relu(x * scale + shift), [x, scale, shift], g))


def check(results: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for result, right in zip(results, expected, strict=True):
        epsilon = torch.finfo(result.dtype).eps
        # Sums cancel: their error goes by what is summed, which the square root of the count stands for.
        count = max(1.0, results[0].numel() / result.numel())
        slack = (
            0
            if count == 1
            else 30 * torch.finfo(torch.float64 if result.dtype is torch.float64 else torch.float32).eps * count**0.5
        )
        torch.testing.assert_close(result.double(), right, rtol=4 * epsilon, atol=slack + 4 * epsilon)


@pytest.mark.parametrize(("dtype", "by_strides", "wide"), [*((each, False, False) for each in FLOATING), *OTHER_WAYS])
@pytest.mark.parametrize("count", [1, 7, 24, 1000, 8192, 40_003])
def test_a_segment_sums_whole_tensors_into_coefficients(
    dtype: torch.dtype, count: int, by_strides: bool, wide: bool
) -> None:
    tensors = [torch.randn(count).to(dtype), torch.randn(count).to(dtype), *(torch.randn(()).to(dtype) for _ in "bcd")]
    expected = reference("polynomial", tensors)
    for vector in (1, width(dtype)):
        results = host_cuda.run(
            programs.polynomial_backward(dtype),
            tensors,
            shape=(count,),
            sizes=[(count,), *[()] * 4],
            vector=vector,
            wide=wide,
            by_strides=by_strides,
        )
        check(results, expected)


@pytest.mark.parametrize(
    ("shape", "small"),
    [
        ((100, 4), (100, 1)),  # a thread a row
        ((33, 24), (33, 1)),  # part of a warp
        ((9, 500), (9, 1)),  # a warp
        ((3, 20_000), (3, 1)),  # blocks
        ((4, 5, 64), (5, 1)),  # the outermost dimension is summed too
        ((2, 3, 4, 40), (3, 1, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("wide", [False, True])
def test_a_segment_sums_along_the_innermost_dimension(
    shape: tuple[int, ...], small: tuple[int, ...], dtype: torch.dtype, wide: bool
) -> None:
    tensors = [
        torch.randn(shape).to(dtype),
        torch.randn(shape).to(dtype),
        torch.randn(small).to(dtype),
        torch.randn(()).to(dtype),
    ]
    for vector in (1, width(dtype)):
        if shape[-1] % vector == 0:
            results = host_cuda.run(
                programs.affine_backward(dtype),
                tensors,
                shape=shape,
                sizes=[shape, small, ()],
                vector=vector,
                wide=wide,
            )
            check(results, reference("affine", tensors))


@pytest.mark.parametrize(
    ("shape", "scale", "shift"),
    [
        ((1000, 3), (3,), (3,)),  # all
        ((70, 8), (8,), ()),  # all and none
        ((300, 264), (264,), (264,)),  # two tiles
        ((17, 5, 16), (17, 1, 16), (16,)),  # all, inner
        ((17, 50, 16), (17, 1, 16), (17, 1, 1)),  # all, outer
        ((5, 4, 3, 32), (5, 1, 3, 32), ()),  # two dimensions kept
        ((5, 4, 3, 520), (4, 1, 520), (4, 1, 1)),  # two summed, two tiles
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("dtype", "by_strides", "wide"),
    [*((each, False, False) for each in (torch.float32, torch.float64, torch.bfloat16)), *OTHER_WAYS],
)
def test_a_column_sums_down_the_rows(
    shape: tuple[int, ...],
    scale: tuple[int, ...],
    shift: tuple[int, ...],
    dtype: torch.dtype,
    by_strides: bool,
    wide: bool,
) -> None:
    tensors = [
        torch.randn(shape).to(dtype),
        torch.randn(shape).to(dtype),
        torch.randn(scale).to(dtype),
        torch.randn(shift).to(dtype),
    ]
    for vector in (1, width(dtype)):
        if shape[-1] % vector == 0:
            results = host_cuda.run(
                programs.affine_backward(dtype),
                tensors,
                shape=shape,
                sizes=[shape, scale, shift],
                vector=vector,
                wide=wide,
                by_strides=by_strides,
            )
            check(results, reference("affine", tensors))


def test_an_absent_result_is_neither_written_nor_read_for() -> None:
    tensors = [torch.randn(50, 8), torch.randn(50, 8), torch.randn(8), torch.randn(8)]
    results = host_cuda.run(
        programs.affine_backward(torch.float32),
        tensors,
        shape=(50, 8),
        sizes=[(50, 8), (8,), (8,)],
        vector=4,
        absent=(0, 2),
    )
    check([results[1]], [reference("affine", tensors)[1]])
    assert (results[0] == -77).all() and (results[2] == -77).all()


# --- combine --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (528, 1), (5000, 1), (33, 3), (7, 100), (300, 65)])
def test_partial_sums_are_combined_in_double(dtype: torch.dtype, rows: int, columns: int) -> None:
    partial = torch.randn(rows, columns, dtype=torch.float64 if dtype is torch.float64 else torch.float32)
    result = torch.empty(columns, dtype=dtype)
    host_cuda.combine(partial, result)
    expected = partial.double().sum(0)
    torch.testing.assert_close(result, expected.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-12)


def test_one_launch_combines_several_results() -> None:
    partials = [torch.randn(20, 40), torch.randn(300, 1), torch.randn(3, 70)]
    results = [torch.empty(partial.shape[1]) for partial in partials]
    words = [
        word
        for partial, result in zip(partials, results, strict=True)
        for word in (partial.data_ptr(), result.data_ptr(), *partial.shape)
    ]
    host_cuda.launch(emit_cuda.combine_text(torch.float32, jobs=3), emit_cuda.COMBINE, words, (3, 3, 1))
    for partial, result in zip(partials, results, strict=True):
        torch.testing.assert_close(result, partial.double().sum(0).float())
