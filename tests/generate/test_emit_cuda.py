"""The CUDA C++ of programs: it compiles for every GPU, moves 16 bytes at a time, spills nothing, and reads well."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from launch import pieces

from opsmith.errors import CudaHeadersNotFoundError, NvrtcNotFoundError
from opsmith.generate import emit_cuda, tuning
from opsmith.generate.expression import Program
from opsmith.generate.text import fast_math
from opsmith.launch.driver import Driver
from opsmith.launch.planner import LayoutClass
from opsmith.toolchain import CudaProgram, find_nvrtc
from opsmith.toolchain.find import nvrtc_binding

from . import host_cuda, programs

ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]
H200 = pieces.gpu(132)
FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]

pytestmark = pytest.mark.usefixtures("_nvrtc")


@pytest.fixture(scope="module")
def _nvrtc() -> None:
    try:
        find_nvrtc()
    except (NvrtcNotFoundError, CudaHeadersNotFoundError) as error:
        pytest.skip(str(error))


class Compiled(NamedTuple):
    ptx: str
    registers: int
    stack: int
    spilled: int
    seconds: float


def compiled(text: str, arch: str = "sm_90") -> Compiled:
    """The PTX of a text, and what the assembler tells of it. (CudaProgram keeps no PTX.)"""
    nvrtc = nvrtc_binding()
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    options = [f"--gpu-architecture={arch}", *emit_cuda.options(text), f"--include-path={host_cuda.INCLUDE}"]
    options.append("--ptxas-options=-v")
    start = time.process_time()  # others may be at work on this machine
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    seconds = time.process_time() - start
    log = bytes(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    words = log.decode()
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, words
    ptx = bytes(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    numbers = [
        re.search(pattern, words) for pattern in (r"Used (\d+) reg", r"(\d+) bytes stack", r"(\d+) bytes spill st")
    ]
    registers, stack, spilled = (int(number[1]) for number in numbers if number is not None)
    return Compiled(ptx.rstrip(b"\0").decode(), registers, stack, spilled, seconds)


def vector_of(*dtypes: torch.dtype) -> int:
    return pieces.pack_width([dtype.itemsize for dtype in dtypes])


def stream(program: Program, vector: int, wide: bool = False) -> LayoutClass:
    return LayoutClass("stream", ("linear",) * (len(program.reads) + len(program.results)), 0, 0, vector, wide)


def whole(vector: int, wide: bool = False) -> LayoutClass:
    """polynomial_backward over one dimension."""
    modes = ("strided1", "strided1", "scalar", "scalar", "scalar", "strided1", *["reduced:all"] * 4)
    return LayoutClass("segment", modes, 0, 1, vector, wide)


def columns(vector: int, wide: bool = False) -> LayoutClass:
    """affine_backward down the rows of a matrix."""
    modes = ("strided1", "strided1", "strided1", "strided1", "strided1", "reduced:all", "reduced:all")
    return LayoutClass("column", modes, 0, 1, vector, wide)


# --- every GPU, every path ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_kernels_compile_for_every_architecture(arch: str, dtype: torch.dtype) -> None:
    vector = vector_of(dtype)
    mish, polynomial, affine = (
        programs.mish(dtype),
        programs.polynomial_backward(dtype),
        programs.affine_backward(dtype),
    )
    texts = [
        emit_cuda.text(mish, stream(mish, vector)),
        emit_cuda.text(polynomial, whole(vector)),
        emit_cuda.text(affine, columns(vector)),
        emit_cuda.combine_text(dtype),
    ]
    for text in texts:
        program = CudaProgram(
            text, arch=arch, options=emit_cuda.options(text), include_dirs=[host_cuda.INCLUDE], name="kernel.cu"
        )
        assert program.compile().path.stat().st_size > 0


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("vector", [1, 4])
@pytest.mark.parametrize("inner", [1, 3])
@pytest.mark.parametrize("path", ["stream", "segment", "column"])
def test_every_mode_compiles(path: str, inner: int, vector: int, wide: bool) -> None:
    program = programs.affine_backward(torch.float32)
    reads = ("strided1", "stridedn", "strided0", "scalar")
    if path == "stream":
        full = program.reads
        only = programs.build(
            "test::modes",
            [read.dtype for read in full],
            lambda builder, x, y, z, u: [x * y + z * u],
            [("output", torch.float32, None)],
        )
        variants = [
            LayoutClass("stream", (*reads, mode), 0, inner, vector, wide) for mode in ("linear", "strided1", "stridedn")
        ]
        programs_of = [only] * 3
    else:
        roles = ["all", "none"] if path == "segment" else ["all", "inner", "outer", "none"]
        variants = [
            LayoutClass(path, (*reads, full_size, "reduced:all", f"reduced:{role}"), outer, inner, vector, wide)
            for role in roles
            for full_size in ("strided1", "stridedn", "absent")
            for outer in (0, 2)
        ][:: 3 if wide else 2]
        programs_of = [program] * len(variants)
    for each, layout in zip(programs_of, variants, strict=True):
        # Sixty-four-bit offsets of tensors that lie apart in three dimensions may cost some registers too many.
        assert compiled(emit_cuda.text(each, layout)).spilled <= (0 if inner == 1 and not wide else 64)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool], ids=str)
def test_integers_and_truth_compile(dtype: torch.dtype) -> None:
    name = "logical_xor" if dtype is torch.bool else "bitwise_xor"
    program = programs.build(
        "test::xor", [dtype] * 2, lambda builder, x, y: [builder.apply(name, x, y)], [("output", dtype, None)]
    )
    assert compiled(emit_cuda.text(program, stream(program, vector_of(dtype)))).spilled == 0


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize("kind", ["float", "double", "fast"])
def test_every_function_compiles_in_a_kernel(kind: str, arch: str) -> None:
    """One kernel with a call of each."""
    from .test_cuda_functions import ACTIVATIONS, FLOAT_BINARY, UNARY

    one = "double" if kind == "double" else "float"
    calls = [f"{name}(x)" for name in dict.fromkeys([*UNARY, *ACTIVATIONS, "sinc"])]
    calls += [f"{name}(x, y)" for name in FLOAT_BINARY]
    text = f"""{"#define OPSMITH_FAST_MATH" if kind == "fast" else ""}
#include <opsmith/pointwise/cuda.h>
namespace opsmith {{
extern "C" __global__ void everything({one}* data) {{
  const {one} x = data[threadIdx.x];
  const {one} y = data[threadIdx.x + 256];
  {" ".join(f"data[{place + 2} * 256 + threadIdx.x] = {call};" for place, call in enumerate(calls))}
}}
}}
"""
    assert compiled(text, arch).ptx


# --- speed, as far as it shows in the text --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_full_size_tensors_move_16_bytes_at_a_time_and_stream(dtype: torch.dtype) -> None:
    vector = vector_of(dtype)
    product = programs.product(dtype)
    in_flight = tuning.unroll(product, stream(product, vector))
    ptx = compiled(emit_cuda.text(product, stream(product, vector))).ptx
    assert len(re.findall(r"ld\.global\.v(?:4\.[ubf]32|2\.[ubf]64)", ptx)) == 2 * in_flight
    assert len(re.findall(r"st\.global\.v(?:4\.[ubf]32|2\.[ubf]64)", ptx)) == in_flight
    narrow = compiled(emit_cuda.text(product, stream(product, 1))).ptx
    assert ".v4" not in narrow

    for program, layout, loads in (
        (programs.polynomial_backward(dtype), whole(vector), 2),
        (programs.affine_backward(dtype), columns(vector), 4),
    ):
        ptx = compiled(emit_cuda.text(program, layout)).ptx
        several = {tuning.unroll(program, layout), tuning.packs_in_flight(program, layout)}
        # Before the loop, and in it; of many blocks, and of few. Pairs of columns are such packs, of doubles.
        in_flight = 2 * sum(several) + (layout.path == "column" and dtype is torch.float64)
        assert len(re.findall(r"ld\.global\.v(?:4\.[ubf]32|2\.[ubf]64)", ptx)) == loads * in_flight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_few_blocks_have_more_packs_on_the_way(dtype: torch.dtype) -> None:
    program, layout = programs.polynomial_backward(dtype), whole(vector_of(dtype))
    assert tuning.unroll(program, layout) == 1
    assert tuning.packs_in_flight(program, layout) == (4 if dtype is torch.float32 else 2)
    assert tuning.packs_in_flight(program, replace(layout, wide=True)) == 1
    assert compiled(emit_cuda.text(program, layout)).spilled == 0


def test_a_wide_tensor_beside_a_narrow_one_takes_two_moves() -> None:
    program = programs.product(torch.bfloat16, torch.float32)
    vector = vector_of(torch.bfloat16, torch.float32)
    in_flight = tuning.unroll(program, stream(program, vector))
    ptx = compiled(emit_cuda.text(program, stream(program, vector))).ptx
    assert vector == 8 and len(re.findall(r"ld\.global\.v4", ptx)) == 3 * in_flight


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_nothing_spills_and_enough_blocks_fit(dtype: torch.dtype) -> None:
    vector = vector_of(dtype)
    mish, gelu, product = programs.mish(dtype), programs.gelu(dtype), programs.product(dtype)
    texts = [emit_cuda.text(program, stream(program, vector)) for program in (mish, gelu, product)]
    texts.append(emit_cuda.text(programs.polynomial_backward(dtype), whole(vector)))
    texts.append(emit_cuda.text(programs.affine_backward(dtype), columns(vector)))
    most = 65536 // (tuning.RESIDENT // 2 if dtype is torch.float64 else tuning.RESIDENT)
    for text in texts:
        for arch in ("sm_80", "sm_90", "sm_120"):
            result = compiled(text, arch)
            # 2048 threads of mish in a half type, 32 registers each, spill one on some GPUs and are the fastest still.
            assert result.spilled <= (4 if dtype.itemsize == 2 else 0) and result.registers <= most


def test_half_types_are_converted_in_pairs_where_the_gpu_can() -> None:
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "f16")):
        text = emit_cuda.text(programs.mish(dtype), stream(programs.mish(dtype), 8))
        assert f"cvt.rn.{name}x2.f32" in compiled(text, "sm_80").ptx
        assert f"cvt.rn.{name}x2.f32" not in compiled(text, "sm_75").ptx


def test_half_types_use_fast_functions_and_float_does_not() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        text = emit_cuda.text(programs.gelu(dtype), stream(programs.gelu(dtype), 8))
        ptx = compiled(text).ptx
        assert "OPSMITH_FAST_MATH" in text and "ex2.approx.ftz.f32" in ptx and "rcp.approx.ftz.f32" in ptx
    text = emit_cuda.text(programs.mish(torch.float32), stream(programs.mish(torch.float32), 4))
    assert "OPSMITH_FAST_MATH" not in text and "div.rn.f32" in compiled(text).ptx


def test_what_jumps_is_never_computed_from_what_is_approximate() -> None:
    def rounded(dtype: torch.dtype, name: str) -> Program:
        return programs.unary(lambda builder, x: builder.apply("floor", builder.apply(name, x, x)), dtype)

    half = torch.bfloat16
    assert fast_math(programs.unary(lambda builder, x: x / 3, half))
    assert fast_math(rounded(half, "mul"))
    assert not fast_math(rounded(half, "div"))
    assert not fast_math(programs.unary(lambda builder, x: (builder.apply("exp", x) > 1).where(x, 0), half))
    assert fast_math(programs.unary(lambda builder, x: (x > 1).where(x, builder.apply("exp", x)), half))
    assert not fast_math(programs.unary(lambda builder, x: x / 3, torch.float32))
    assert not fast_math(programs.product(half, torch.float32))
    assert not fast_math(programs.product(torch.int32))


def test_multiplications_and_additions_are_not_fused() -> None:
    program = programs.unary(lambda builder, x: x * x + x, torch.float32)
    assert "fma" not in compiled(emit_cuda.text(program, stream(program, 4))).ptx


def test_a_dear_program_has_fewer_packs_in_flight() -> None:
    def repeated(times: int) -> Program:
        def formula(builder: programs.Builder, x: programs.Value) -> programs.Value:
            for _ in range(times):
                x = builder.apply("pow_general", x, x)
            return x

        return programs.unary(formula, torch.bfloat16)

    assert [tuning.unroll(repeated(times), stream(repeated(times), 8)) for times in (0, 1, 9)] == [2, 2, 1]


@pytest.mark.timing
def test_a_forward_and_its_backward_compile_in_well_under_a_second() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        polynomial, gelu = programs.polynomial_backward(dtype), programs.gelu(dtype)
        texts = [
            emit_cuda.text(gelu, stream(gelu, vector_of(dtype))),
            emit_cuda.text(polynomial, whole(vector_of(dtype))),
        ]
        compiled(texts[0])  # NVRTC loads what it needs
        assert sum(compiled(text).seconds for text in texts) < 1


# --- the text -------------------------------------------------------------------------------------------------


def test_the_text_names_its_origin_and_each_lines() -> None:
    program = programs.mish(torch.float32)
    text = emit_cuda.text(program, stream(program, 4))
    lines = text.splitlines()
    assert lines[0] == "// test::mish, ops.py:12"
    assert lines[1].startswith("//   def scaled(x, scale):") and not lines[1].endswith("\\")
    assert lines[3] == "// x linear, output linear"
    assert "    const float tanh_softplus_1 = tanh_softplus(x);  // ops.py:13" in lines
    assert emit_cuda.entry_name(program, stream(program, 4)) == "test_mish_stream"
    assert max(map(len, lines)) <= 120


def test_what_depends_on_arguments_alone_is_computed_once() -> None:
    program = programs.build(
        "test::scaled",
        [torch.float32],
        lambda builder, x, scale: [x * builder.apply("exp", scale).to(torch.float32)],
        [("output", torch.float32, None)],
        scalars=[("scale", torch.float64)],
    )
    text = emit_cuda.text(program, stream(program, 4))
    element = text[text.index("struct Element") : text.index("void operator()")]
    assert "exp_1 = exp(scale);" in element and "cast_1 = cast<float>(exp_1);" in element


# --- grids ----------------------------------------------------------------------------------------------------


def test_a_pack_is_16_bytes_of_the_narrowest_tensor_and_8_elements_at_most() -> None:
    assert [pieces.pack_width(sizes) for sizes in ([4], [2], [8], [1], [2, 4], [4, 8])] == [4, 8, 2, 8, 8, 4]


@pytest.mark.parametrize("length", [1, 5, 64, 8191, 10**6, 2**27, 2**33])
@pytest.mark.parametrize("kept", [1, 3, 64, 1000, 10**6])
def test_a_segment_s_chunks_have_terms_each_and_are_shared_by_part_of_a_block(length: int, kept: int) -> None:
    for vector in (1, 8):
        chunks, group, *_ = pieces.segment_chunks(H200, length, kept, vector)
        packs = length // vector
        assert chunks == 1 or (chunks - 1) * group < packs
        assert group in (1, 2, 4, 8, 16, 32, tuning.THREADS["segment"])
        assert group < 2 * max(1, -(-length // (chunks * vector))) or group == tuning.THREADS["segment"]


@pytest.mark.parametrize("rows", [1, 5, 100, 512, 8191, 10**6])
@pytest.mark.parametrize("columns_count", [8, 64, 4096, 12_288])
@pytest.mark.parametrize("kept", [1, 64])
def test_tiles_cover_the_columns_and_chunks_have_rows_each(rows: int, columns_count: int, kept: int) -> None:
    for vector in (1, 8):
        chunks, block, tiles, _ = pieces.column_chunks(H200, columns_count, kept, rows, vector)
        width, height, _, share, pairs, one_chunk = standing(block)
        pack = min(2, vector) if pairs else vector
        assert (tiles - 1) * width * pack < columns_count <= tiles * width * pack
        assert (chunks - 1) * height < rows
        assert height == (rows if pairs else tuning.THREADS["column"] // width)
        assert width * max(pack << share, height) <= tuning.THREADS["column"]
        assert one_chunk == (chunks == 1)
        assert pairs == (kept == 1 and rows <= 256 and columns_count * rows <= tuning.SMALL[0] * 132)
        assert chunks == 1 if pairs else width <= tuning.TILE_PACKS


@pytest.mark.parametrize("vector", [1, 2, 4, 8])
@pytest.mark.parametrize("width", [*range(1, tuning.TILE_PACKS + 1), *range(33, 129, 5), 128])  # pairs: two rows
def test_a_block_is_given_the_arrangement_of_its_threads(width: int, vector: int) -> None:
    threads = tuning.THREADS["column"]
    block = pieces.column_block(width, threads // width, vector, 2)
    given_width, height, inverse, share, pairs, one_chunk = standing(block)
    assert (given_width, height, pairs, one_chunk) == (width, threads // width, False, False)
    assert [thread * inverse >> 15 for thread in range(threads)] == [thread // width for thread in range(threads)]
    if width <= tuning.TILE_PACKS:
        assert (width * vector) << share <= threads and 0 <= share <= 5  # a thread for each part of each column
    assert share == 5 or height < 2 * max(4, vector) << share


def standing(word: int) -> tuple[int, int, int, int, bool, bool]:
    """What cuda.h's ColumnBlock makes of the word: width, height, inverse, share, pairs, one_chunk."""
    flags = bool(word >> 56 & 1), bool(word >> 57 & 1)
    return word & 0xFFFF, word >> 16 & 0xFFFF, word >> 32 & 0xFFFF, word >> 48 & 0xFF, *flags


def test_a_few_short_sums_are_made_in_one_launch_by_as_many_threads_as_there_are_packs() -> None:
    assert pieces.segment_chunks(H200, 1024, 1, 4)[:2] == (1, 128)
    for square, vector, few, pack in [(128, 4, True, 2), (128, 8, True, 2), (512, 8, False, 8)]:
        chunks, block, tiles, _ = pieces.column_chunks(H200, square, 1, square, vector)
        width, _, _, _, pairs, _ = standing(block)
        assert (chunks, width, tiles, pairs) == (1, 2, square // (2 * pack), few)
    chunks, block, *_ = pieces.column_chunks(H200, 2048, 1, 2048, 4)
    assert chunks > 1 and standing(block)[0] == tuning.TILE_PACKS


def test_one_sum_over_everything_fills_the_gpu_just_once() -> None:
    assert pieces.segment_chunks(H200, 2**27, 1, 8).count == 8 * 132
    chunks, _, tiles, _ = pieces.column_chunks(H200, 4096, 1, 32_768, 8)
    assert 0.95 * 4 * 132 < chunks * tiles <= 4 * 132


@pytest.mark.parametrize(("columns_count", "vector", "chunks"), [(65_536, 8, 2), (65_536, 4, 1), (98_304, 8, 6)])
def test_many_sums_are_cut_no_further_than_it_takes_to_fill_the_gpu(
    columns_count: int, vector: int, chunks: int
) -> None:
    found, _, tiles, _ = pieces.column_chunks(H200, columns_count, 1, 2048, vector)
    assert found == chunks
    assert 0.93 * 4 * 132 < found * tiles <= 4 * 132 or found * tiles >= 4 * 4 * 132


def test_the_sums_of_many_columns_share_their_memory() -> None:
    """Static shared memory ends at 48 KiB; that of one sum of eight columns a thread is 8."""
    count = 9
    program = programs.build(
        "test::many",
        [torch.bfloat16, torch.bfloat16],
        lambda builder, g, x: [g * x + number for number in range(count)],
        [(f"grad_{number}", torch.bfloat16, 1) for number in range(count)],
    )
    layout = LayoutClass("column", ("strided1", "strided1", *["reduced:all"] * count), 0, 1, 8, False)
    assert compiled(emit_cuda.text(program, layout)).registers <= 64


def test_more_blocks_than_a_gpu_takes_are_refused() -> None:
    """A number of 32 bits would lose the upper ones, and most of the results would not be written."""
    driver = object.__new__(Driver)
    assert driver.configuration((2**31 - 1, 1, 1), (128, 1, 1), 0, 0)
    with pytest.raises(ValueError, match="a launch of 4294967297 blocks is more than a GPU takes"):
        driver.configuration((2**32 + 1, 1, 1), (128, 1, 1), 0, 0)
