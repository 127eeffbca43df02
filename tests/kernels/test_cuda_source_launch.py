"""Launches, all but the GPU: what the driver is given for which arguments, and what is refused before it is asked.

The driver is fake_cuda.cpp, which loads the real cubins and reads a launch's parameters by the sizes they tell.
"""

from __future__ import annotations

import ctypes
import math
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import opsmith
from opsmith import errors
from opsmith.launch import driver as driver_module
from opsmith.toolchain import find_nvrtc

from .fake_cuda import FakeCuda, on_gpu

TEXT = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/std/complex>
#include <cuda/std/cstdint>
struct Params { char tag; double scale; int n; };
enum class Mode : short { first, second };
typedef long long index_t;
template <class T> struct Trait { using scalar = double; };
__constant__ float table[4];
__constant__ const float fixed[2] = {1, 2};
__constant__ int number;
__constant__ float4 corners[2];
__constant__ Params settings;
namespace ns { __constant__ __nv_bfloat16 halves[2]; }

__global__ void add(const float* a, const float* b, float* y, int n) { y[0] = a[0] + b[n]; }
__global__ void none() {}
__global__ void integers(char a, signed char b, unsigned char c, short d, unsigned short e, int f, unsigned int g,
                         long h, unsigned long i, long long j, unsigned long long k, bool l, Mode m, index_t n,
                         size_t o, cuda::std::int64_t p, int8_t q) {}
__global__ void floats(float a, double b, __half c, __nv_bfloat16 d) {}
__global__ void structs(char before, Params p, float4 v, float3 w, float2 c, uchar2 u, dim3 g, char after) {}
__global__ void elements(float* a, double* b, __half* c, __nv_bfloat16* d, int8_t* e, uint8_t* f, int16_t* g,
                         int32_t* h, int64_t* i, long long* j, bool* k, uint16_t* l, uint32_t* m, uint64_t* n,
                         const float* const o, volatile float* p, char* q) {}
__global__ void pairs(float2* a, double2* b, cuda::std::complex<float>* c, float4* d, __half2* e) {}
__global__ void others(void* a, const void* b, Params* c, float** d, const int (*e)[4]) {}
__global__ void strided(const float* x, int64_t row_stride, int64_t column_stride) {}
__global__ void sized(const float* x, int64_t rows, int64_t columns) {}
__global__ void with_shared(float* x) { extern __shared__ float s[]; __shared__ float fixed_size[256];
  s[threadIdx.x] = x[0]; fixed_size[threadIdx.x] = s[0]; __syncthreads(); x[0] = fixed_size[1] + table[number]
  + corners[0].x + settings.n + float(ns::halves[0]); }
template <class T, int N> __global__ void scale(const T* x, T* y, typename Trait<T>::scalar factor, int n) {
  y[0] = x[0] * T(N) * T(factor) * T(table[n]); }
"""

NAMES = "abcdefghijklmnopq"


@pytest.fixture(scope="module", autouse=True)
def _nvrtc() -> None:
    try:
        find_nvrtc()
    except errors.NvrtcNotFoundError as error:
        pytest.skip(f"NVRTC is not installed: {error}")


@pytest.fixture
def gpu() -> Iterator[FakeCuda]:
    with driver_module.substituted(FakeCuda()) as fake:
        assert isinstance(fake, FakeCuda)
        yield fake


@pytest.fixture
def cu(gpu: FakeCuda) -> Any:
    return opsmith.cuda_source(TEXT)


def x(*shape: int, dtype: torch.dtype = torch.float32, index: int = 0) -> Any:
    return on_gpu(torch.zeros(shape or (8,), dtype=dtype), index)


# --- what the driver is given ---------------------------------------------------------------------------------------


def test_a_launch_reaches_the_driver_as_it_was_asked_for(cu: Any, gpu: FakeCuda) -> None:
    a, b, y = x(), x(), x()
    gpu.fake.streams[0] = 0xABC
    cu.add[(5, 6), (7, 8, 9), 1024](a, b, y, -3)
    (launched,) = gpu.launches
    assert "add" in launched.kernel
    assert launched.grid == (5, 6, 1) and launched.block == (7, 8, 9)
    assert launched.shared == 1024 and launched.stream == 0xABC
    assert launched.values("QQQi") == [a.data_ptr(), b.data_ptr(), y.data_ptr(), -3]


def test_a_kernel_without_parameters_and_without_tensors_goes_to_the_current_device(cu: Any, gpu: FakeCuda) -> None:
    gpu.fake.count, gpu.fake.current = 2, 1
    cu.none[1, 1]()
    assert gpu.launches[0].parameters == []


def test_integers_are_converted_to_what_the_kernel_declares(cu: Any, gpu: FakeCuda) -> None:
    least = [
        -128,
        -128,
        0,
        -(2**15),
        0,
        -(2**31),
        0,
        -(2**63),
        0,
        -(2**63),
        0,
        0,
        -(2**15),
        -(2**63),
        0,
        -(2**63),
        -128,
    ]
    most = [127, 127, 255, 2**15 - 1, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1, 2**63 - 1, 2**64 - 1, 1,
            2**15 - 1, 2**63 - 1, 2**64 - 1, 2**63 - 1, 127]  # fmt: skip
    for given in (least, most):
        cu.integers[1, 1](*given)
    assert [launched.values("bbBhHiIqQqQ?hqQqb") for launched in gpu.launches] == [least, most]
    for position, (low, high) in enumerate(zip(least, most, strict=True)):
        for value in (low - 1, high + 1):
            given = [1] * 17
            given[position] = value
            with pytest.raises(errors.KernelValueError, match=rf"integers: parameter '{NAMES[position]}'"):
                cu.integers[1, 1](*given)
    assert len(gpu.launches) == 2


def test_whole_numbers_of_numpy_and_bools_are_integers(cu: Any, gpu: FakeCuda) -> None:
    a = x()
    for value in (numpy.int64(3), numpy.uint8(3), True):
        cu.add[1, 1](a, a, a, value)
    assert [launched.values("QQQi")[3] for launched in gpu.launches] == [3, 3, 1]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.0, "takes an int, not the float 1.0"),
        (numpy.float32(1), "takes an int, not float32"),
        ("3", "takes an int, not str '3'"),
        (None, "takes an int, not NoneType None"),
        (3j, "takes an int, not complex 3j"),
        (torch.tensor(3), r"takes a number, not a tensor: pass n\.item\(\), which waits for the GPU"),
    ],
)
def test_what_is_not_an_integer_is_refused_for_an_integer(cu: Any, value: Any, words: str) -> None:
    with pytest.raises(errors.KernelArgumentError, match=rf"add: parameter 'n' \(int\) {words}") as caught:
        cu.add[1, 1](x(), x(), x(), value)
    assert "add(const float* a, const float* b, float* y, int n)" in str(caught.value)


def test_an_integer_that_does_not_fit_is_refused_with_the_range(cu: Any) -> None:
    with pytest.raises(
        errors.KernelValueError, match=r"'n' \(int\) holds -2147483648 to 2147483647, and 2147483648 does"
    ):
        cu.add[1, 1](x(), x(), x(), 2**31)


def test_floats_are_converted_to_what_the_kernel_declares(cu: Any, gpu: FakeCuda) -> None:
    for value in (0.1, 3, numpy.float64(0.1), numpy.int32(7), -0.0, math.inf, -math.inf, math.nan, 65504, True):
        cu.floats[1, 1](value, value, value, value)
        single, double, half, brain = gpu.launches[-1].parameters
        number = float(value)
        assert single == struct.pack("<f", number) and double == struct.pack("<d", number)
        assert half == struct.pack("<e", number)
        expected = torch.tensor(number, dtype=torch.float32).to(torch.bfloat16).view(torch.int16).item()
        assert struct.unpack("<h", brain)[0] == expected


def test_bfloat16_is_rounded_to_the_nearest_even(cu: Any, gpu: FakeCuda) -> None:
    values = [
        *torch.randn(200, dtype=torch.float64).mul(10).tolist(),
        1 + 2**-8,
        1 + 3 * 2**-8,
        1 + 2**-8 + 2**-20,
        3.3e38,
    ]
    for value in values:
        cu.floats[1, 1](0.0, 0.0, 0.0, value)
        bits = struct.unpack("<h", gpu.launches[-1].parameters[3])[0]
        assert bits == torch.tensor(value, dtype=torch.float32).to(torch.bfloat16).view(torch.int16).item(), value


@pytest.mark.parametrize(("position", "value"), [(0, 1e39), (2, 70000.0), (3, 3.4e38), (0, 10**60), (1, 10**400)])
def test_a_number_too_large_for_its_float_is_refused(cu: Any, position: int, value: float) -> None:
    given: list[Any] = [0.0] * 4
    given[position] = value
    with pytest.raises(errors.KernelValueError, match=f"floats: parameter '{'abcd'[position]}' .* cannot hold"):
        cu.floats[1, 1](*given)


@pytest.mark.parametrize("value", ["1.0", None, 1j, torch.tensor(1.0), b"1"])
def test_what_is_not_a_number_is_refused_for_a_float(cu: Any, value: Any) -> None:
    with pytest.raises(errors.KernelArgumentError, match=r"floats: parameter 'a' \(float\) takes a"):
        cu.floats[1, 1](value, 0.0, 0.0, 0.0)


class Params(ctypes.Structure):
    _fields_ = (("tag", ctypes.c_char), ("scale", ctypes.c_double), ("n", ctypes.c_int))


def test_structs_and_vectors_go_by_value(cu: Any, gpu: FakeCuda) -> None:
    params = Params(b"t", 2.5, 7)
    for given in (params, bytes(params), bytearray(params), memoryview(bytes(params))):
        cu.structs[1, 1](1, given, (1, 2.0, 3, 4), [5, 6, 7], 8 + 9j, (10, 11), (12, 13, 14), 15)
    assert len(gpu.launches) == 4
    for launched in gpu.launches:
        before, struct_, v, w, c, u, g, after = launched.parameters
        assert (before, after) == (b"\x01", b"\x0f")
        assert Params.from_buffer_copy(struct_).scale == 2.5 and Params.from_buffer_copy(struct_).n == 7
        assert struct.unpack("<4f", v) == (1, 2, 3, 4) and struct.unpack("<3f", w) == (5, 6, 7)
        assert struct.unpack("<2f", c) == (8, 9) and tuple(u) == (10, 11) and struct.unpack("<3I", g) == (12, 13, 14)


@pytest.mark.parametrize(
    ("position", "value", "error", "words"),
    [
        (1, b"short", errors.KernelValueError, "is a Params of 24 bytes, and was given 5 bytes"),
        (1, 3, errors.KernelArgumentError, "is a Params of 24 bytes and takes a ctypes.Structure"),
        (1, torch.zeros(24, dtype=torch.uint8), errors.KernelArgumentError, "takes a ctypes.Structure"),
        (2, (1, 2, 3), errors.KernelArgumentError, "takes 4 numbers, not 3"),
        (2, 1.0, errors.KernelArgumentError, "takes a tuple of 4 numbers, not float 1.0"),
        (2, "abcd", errors.KernelArgumentError, "takes a tuple of 4 numbers"),
        (2, (1, 2, 3, "4"), errors.KernelArgumentError, "takes a float or an int, not str"),
        (5, (1, 256), errors.KernelValueError, "holds 0 to 255, and 256 does not fit"),
    ],
)
def test_a_struct_or_a_vector_of_another_size_is_refused(
    cu: Any, position: int, value: Any, error: type[Exception], words: str
) -> None:
    given: list[Any] = [1, Params(), (1, 2, 3, 4), (5, 6, 7), (8, 9), (10, 11), (12, 13, 14), 15]
    given[position] = value
    with pytest.raises(error, match=words):
        cu.structs[1, 1](*given)


ELEMENTS = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
    torch.int64, torch.int64, torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.float32, torch.float32,
    torch.int8,
]  # fmt: skip


def test_a_pointer_takes_tensors_of_its_element(cu: Any, gpu: FakeCuda) -> None:
    tensors = [x(dtype=dtype) for dtype in ELEMENTS]
    cu.elements[1, 1](*tensors)
    assert gpu.launches[0].values("Q" * len(tensors)) == [tensor.data_ptr() for tensor in tensors]
    for position, dtype in enumerate(ELEMENTS):
        wrong = torch.float64 if dtype is torch.float32 else torch.float32
        given = list(tensors)
        given[position] = x(dtype=wrong)
        with pytest.raises(
            errors.KernelArgumentError,
            match=rf"'{NAMES[position]}' .* takes an? {str(dtype)[6:]} tensor, .*, not a {str(wrong)[6:]} tensor",
        ):
            cu.elements[1, 1](*given)


def test_pairs_and_vectors_take_what_they_are_made_of(cu: Any, gpu: FakeCuda) -> None:
    tensors = [x(dtype=t) for t in (torch.complex64, torch.complex128, torch.complex64, torch.float32, torch.float16)]
    cu.pairs[1, 1](*tensors)
    cu.pairs[1, 1](x(dtype=torch.float32), x(dtype=torch.float64), *tensors[2:])
    assert gpu.launches[0].values("QQQQQ") == [tensor.data_ptr() for tensor in tensors]
    memory = x(64)
    aligned = memory[(-memory.data_ptr() // 4) % 4 :]  # plain slices: the stand-in is lost, and taken on again
    with pytest.raises(
        errors.KernelValueError, match=r"reads at multiples of 16 bytes.*begins 4 bytes after one: d = d.clone"
    ):
        cu.pairs[1, 1](*tensors[:3], on_gpu(torch.Tensor(aligned)[1:5]), tensors[4])


def test_none_is_a_null_pointer_and_any_address_can_be_forced(cu: Any, gpu: FakeCuda) -> None:
    a = x(dtype=torch.int32)
    cu.others[1, 1](a, None, x(dtype=torch.uint8), ctypes.c_void_p(12345), ctypes.c_void_p(None))
    cu.add[1, 1](None, ctypes.c_void_p(7), None, 0)
    assert gpu.launches[0].values("QQQQQ")[::3] == [a.data_ptr(), 12345] and gpu.launches[0].values("QQQQQ")[4] == 0
    assert gpu.launches[1].values("QQQi") == [0, 7, 0, 0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (12345, r"takes a tensor, not the number 12345; for a raw address pass ctypes.c_void_p\(12345\)"),
        ([1.0, 2.0], "takes a float32 tensor, None or ctypes.c_void_p, not list"),
        (numpy.zeros(3, dtype=numpy.float32), "takes a float32 tensor, .*, not ndarray"),
        (1.0, "takes a float32 tensor, .*, not float 1.0"),
    ],
)
def test_what_is_not_a_tensor_is_refused_for_a_pointer(cu: Any, value: Any, words: str) -> None:
    with pytest.raises(errors.KernelArgumentError, match=rf"add: parameter 'b' \(const float\*\) {words}"):
        cu.add[1, 1](x(), value, x(), 0)


def test_pointers_to_pointers_take_addresses_and_to_what_torch_has_not_bytes(cu: Any, gpu: FakeCuda) -> None:
    addresses = x(dtype=torch.int64)
    cu.others[1, 1](None, None, x(dtype=torch.uint8), addresses, x(dtype=torch.uint8))
    assert gpu.launches[0].values("QQQQQ")[3] == addresses.data_ptr()
    bytes_alone = r"takes a tensor of bytes \(torch.uint8\), None or ctypes"
    for position, words in ((2, bytes_alone), (3, "takes an int64 or uint64 tensor, None or"), (4, bytes_alone)):
        given: list[Any] = [None] * 5
        given[position] = x(dtype=torch.int32)
        with pytest.raises(errors.KernelArgumentError, match=words):
            cu.others[1, 1](*given)


@pytest.mark.parametrize(("given", "words"), [((), "not 0"), ((1, 2, 3), "not 3"), ((1, 2, 3, 4, 5), "not 5")])
def test_another_number_of_arguments_is_refused(cu: Any, given: Any, words: str) -> None:
    with pytest.raises(errors.KernelArgumentError, match=rf"add: it takes 4 arguments \(a, b, y, n\), {words}"):
        cu.add[1, 1](*given)


def test_a_parameter_without_a_name_is_reported_by_its_place(gpu: FakeCuda) -> None:
    cu = opsmith.cuda_source("__global__ void k(float*, int) {}")
    with pytest.raises(errors.KernelArgumentError, match=r"k: parameter 2 \(int\) takes an int"):
        cu.k[1, 1](x(), 1.5)


def test_templates_resolve_dependent_types(cu: Any, gpu: FakeCuda) -> None:
    a = x(dtype=torch.float64)
    cu["scale<double, 4>"][1, 1](a, a, 2.5, 3)
    assert gpu.launches[0].values("QQdi") == [a.data_ptr(), a.data_ptr(), 2.5, 3]
    with pytest.raises(
        errors.KernelArgumentError, match=r"scale<float, 4>: parameter 'x' \(const float\*\) takes a float32"
    ):
        cu["scale<float, 4>"][1, 1](a, a, 2.5, 3)


# --- where tensors are ----------------------------------------------------------------------------------------------


def test_a_tensor_on_the_cpu_is_refused(cu: Any, gpu: FakeCuda) -> None:
    for given in ((torch.zeros(3), x(), x()), (x(), x(), torch.zeros(3)), (torch.zeros(3),) * 3):
        with pytest.raises(
            errors.KernelValueError, match=r"was given a tensor on cpu.*GPU's memory: [ay] = [ay].cuda\(\)"
        ):
            cu.add[1, 1](*given, 0)
    assert gpu.launches == []


def test_without_any_gpu_the_text_alone_tells_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    cu = opsmith.cuda_source(TEXT)
    with pytest.raises(errors.KernelValueError, match=r"'a' \(const float\* a\) was given a tensor on cpu.*a = a.cuda"):
        cu.add[1, 1](*[torch.zeros(3)] * 3, 0)
    with pytest.raises(errors.KernelArgumentError, match=r"'n' \(int n\) takes a number, not a tensor"):
        cu.add[1, 1](None, None, None, torch.tensor(3))
    with pytest.raises(errors.KernelArgumentError, match=r"it takes 4 arguments \(a, b, y, n\), not 1"):
        cu.add[1, 1](torch.zeros(3))
    with pytest.raises(errors.NoGpuError, match="add cannot be launched"):
        cu.add[1, 1](None, None, None, 0)


def test_tensors_on_two_gpus_are_refused(cu: Any, gpu: FakeCuda) -> None:
    gpu.fake.count = 2
    with pytest.raises(
        errors.KernelValueError, match=r"'b' .* on cuda:1, and the first .* cuda:0: .*b = b.to\('cuda:0'\)"
    ):
        cu.add[1, 1](x(), x(index=1), x(), 0)


def test_the_tensors_device_counts_and_not_the_current_one(cu: Any, gpu: FakeCuda) -> None:
    gpu.fake.count = 2
    gpu.fake.streams = {0: 0x10, 1: 0x11}
    gpu.fake.capabilities = {1: (8, 0)}
    a = x(index=1)
    cu.add[1, 1](a, a, a, 1)
    cu.add[1, 1](x(), x(), x(), 1)
    assert [launched.stream for launched in gpu.launches] == [0x11, 0x10]
    assert gpu.fake.current == 0, "what was current is so again"
    assert {key[2] for key in cu._modules} == {"sm_80", "sm_90"}, "each device has code of its own"
    assert cu.add[1, 1]._ready[1].driver.calls("cuLibraryLoadData") == 2


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(3, 4).to_sparse(), "takes a dense tensor, not one of layout torch.sparse_coo"),
        (torch.zeros(3, device="meta"), "was given a tensor on meta"),
        (
            torch.zeros(3, dtype=torch.complex64).conj().imag,
            r"was given a lazily conjugated or negated view.*: b = b.resolve_neg\(\)",
        ),
    ],
)
def test_a_tensor_without_plain_memory_is_refused(cu: Any, gpu: FakeCuda, tensor: torch.Tensor, words: str) -> None:
    if tensor.device.type == "cpu" and tensor.layout is torch.strided:
        tensor = on_gpu(tensor)
    with pytest.raises((errors.KernelArgumentError, errors.KernelValueError), match=words):
        cu.add[1, 1](x(), tensor, x(), 0)


def test_a_conjugated_view_is_refused(cu: Any, gpu: FakeCuda) -> None:
    pair = [x(dtype=t) for t in (torch.complex128, torch.complex64, torch.float32, torch.float16)]
    with pytest.raises(errors.KernelValueError, match=r"a = a.resolve_conj\(\)"):
        cu.pairs[1, 1](on_gpu(torch.zeros(4, dtype=torch.complex64).conj()), *pair)


def test_a_fake_and_a_batched_tensor_are_refused_with_the_way_out(cu: Any, gpu: FakeCuda) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(torch.zeros(8))
    with pytest.raises(errors.KernelArgumentError, match=r"FakeTensor, which has no memory .* through an op"):
        cu.add[1, 1](x(), fake, x(), 0)

    def launched(batched: torch.Tensor) -> torch.Tensor:
        cu.add[1, 1](x(), batched, x(), 0)
        return batched

    with pytest.raises(opsmith.OpsmithError, match="'b'"):
        torch.vmap(launched)(torch.zeros(2, 8))


def test_a_strided_tensor_is_refused_unless_its_strides_are_passed(cu: Any, gpu: FakeCuda) -> None:
    wide = on_gpu(torch.zeros(6, 10)[:, ::2])
    with pytest.raises(
        errors.KernelValueError,
        match=r"'x' .* of shape \(6, 5\) and strides \(10, 2\)\. .*contiguous\(\), or .*: x.stride\(0\), x.stride\(1\)",
    ):
        cu.strided[1, 1](wide, 5, 1)
    with pytest.raises(errors.KernelValueError, match=r"pass them: x.stride\(1\)\."):
        cu.strided[1, 1](wide, 10, 1)
    cu.strided[1, 1](wide, 10, 2)
    with pytest.raises(errors.KernelValueError, match="not contiguous"):  # its sizes are its strides, by chance
        cu.sized[1, 1](on_gpu(torch.zeros(2, 3).t()), 3, 2)
    cu.strided[1, 1](wide, 2, 10)
    assert len(gpu.launches) == 2
    transposed = on_gpu(torch.zeros(6, 10).t())
    cu.strided[1, 1](transposed, 1, 10)
    with pytest.raises(errors.KernelValueError, match=r"x.stride\(1\)"):
        cu.strided[1, 1](transposed, 1, 6)
    cu.strided[1, 1](
        on_gpu(torch.zeros(6, 10)[:, :5]), 10, 99
    )  # along a row one follows the other: no stride is needed
    cu.strided[1, 1](on_gpu(torch.zeros(1, 10)[:, :3]), 7, 7)  # one row: its stride is never used
    cu.strided[1, 1](on_gpu(torch.zeros(5).expand(3, 5)), 0, 1)
    with pytest.raises(errors.KernelValueError):
        cu.strided[1, 1](on_gpu(torch.zeros(5).expand(3, 5)), 5, 1)


def test_an_empty_tensor_and_a_parameter_of_a_module_are_taken(cu: Any, gpu: FakeCuda) -> None:
    cu.add[1, 1](on_gpu(torch.zeros(0)), x(), on_gpu(torch.zeros(3, 0, 2).transpose(0, 2)), 0)
    assert gpu.launches[0].values("QQQi")[0] == 0


# --- the shape of a launch ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ((0, 1), r"the grid is 0, and its x is at least 1\. Skip the launch for an empty tensor"),
        ((1, 0), "the block is 0, and its x is at least 1"),
        ((-1, 1), "the grid is -1, and its x is at least 1"),
        ((2**31, 1), "the grid is 2147483648, and its x is at most 2147483647"),
        (((1, 65536), 1), r"the grid is \(1, 65536\), and its y is at most 65535\. Use x, which is at most 2147483647"),
        (((1, 1, 65536), 1), "its z is at most 65535"),
        ((1, 1025), "the block is 1025, and its x is at most 1024"),
        ((1, (1, 1, 65)), "its z is at most 64"),
        ((1, (32, 33)), r"a block of \(32, 33\) has 1056 threads, and a block has at most 1024"),
        ((1.5, 1), r"the grid takes integers, not float 1\.5: -\(-n // 256\) divides"),
        ((1, "2"), "the block takes integers, not str '2'"),
        ((1, None), "the block takes integers, not NoneType"),
        (((1, 2, 3, 4), 1), "an integer or a tuple of up to three"),
        (((), 1), "an integer or a tuple of up to three"),
        ((1, 1, -4), "the shared memory is -4: pass the bytes"),
        ((1, 1, 2.0), "the shared memory is 2.0: pass the bytes"),
        ((1,), r"kernel\[grid, block\]\(...\)"),
        (3, r"kernel\[grid, block\]\(...\)"),
        ((1, 2, 3, 4, 5), r"kernel\[grid, block\]\(...\)"),
        ((6, 1, 0, 4), r"the grid is 6, which is not a whole number of clusters of 4\. Launch 8, and let the blocks"),
        (((4, 3), 1, 0, (2, 2)), r"the grid is \(4, 3\), which .* clusters of \(2, 2\)\. Launch \(4, 4\)"),
        ((32, 1, 0, 32), "the cluster is 32, and its x is at most 16"),
        (((16, 16), 1, 0, (8, 4)), r"a cluster of \(8, 4\) has 32 blocks, and a cluster has at most 16 on an H100"),
        ((4, 1, 0, 0), r"the cluster is 0, and its x is at least 1\. Use at least one block"),
        ((4, 1, 0, 2.0), "the cluster takes integers, not float 2.0"),
    ],
)
def test_a_launch_that_cannot_be_is_refused_before_it_is_called(cu: Any, gpu: FakeCuda, key: Any, words: str) -> None:
    with pytest.raises(errors.LaunchConfigurationError, match=f"^add: .*{words}") as caught:
        cu.add[key]
    assert isinstance(caught.value, ValueError)


def test_integers_of_any_type_shape_a_launch(cu: Any, gpu: FakeCuda) -> None:
    a = x()
    for key in ((numpy.int64(2), torch.Size([3, 4])), ([2], [3, 4]), ((2, 1), (3, 4, 1)), (2, (3, 4), 0)):
        cu.add[key](a, a, a, 1)
    assert {(launched.grid, launched.block) for launched in gpu.launches} == {((2, 1, 1), (3, 4, 1))}


def test_a_kernel_called_without_a_grid_says_how(cu: Any) -> None:
    with pytest.raises(errors.LaunchConfigurationError, match=r"cu.add\[blocks, threads\]\(...\)"):
        cu.add(1, 2, 3)


def test_more_threads_than_the_kernel_can_have_are_refused(cu: Any, gpu: FakeCuda) -> None:
    gpu.set_limit(driver_module.MAX_THREADS_PER_BLOCK, 256)
    gpu.set_limit(driver_module.REGISTERS, 200)
    a = x()
    with pytest.raises(
        errors.LaunchConfigurationError, match=r"add: a block of 512 .* the 256 .* takes 200 registers per thread"
    ):
        cu.add[1, 512](a, a, a, 1)
    cu.add[1, 256](a, a, a, 1)
    assert len(gpu.launches) == 1


def test_shared_memory_is_allowed_up_to_what_the_gpu_has(cu: Any, gpu: FakeCuda) -> None:
    a = x()
    cu.with_shared[1, 1, 47 << 10](a)
    assert gpu.calls("cuKernelSetAttribute") == 0, "48 KiB are there without asking"
    cu.with_shared[1, 1, 48 << 10](a)
    cu.with_shared[1, 1, 100 << 10](a)
    cu.with_shared[1, 1, 64 << 10](a)
    cu.with_shared[1, 1, 48 << 10](a)
    cu.with_shared[(1, 1), 1, 100 << 10](a)
    assert gpu.calls("cuKernelSetAttribute") == 2, "once for each that is larger than those before"
    handle = cu.with_shared[1, 1, 48 << 10]._ready[0].handle
    assert gpu.attribute(handle, driver_module.MAX_DYNAMIC_SHARED_BYTES, 0) == 100 << 10
    cu.with_shared[1, 1, 232448 - 1024](a)
    with pytest.raises(
        errors.LaunchConfigurationError,
        match=r"232449 bytes of shared memory .*, of which the kernel declares 1024, and cuda:0 has 232448",
    ):
        cu.with_shared[1, 1, 232448 - 1023](a)


def test_a_cluster_reaches_the_driver_as_it_was_asked_for(cu: Any, gpu: FakeCuda) -> None:
    a = x()
    cu.add[(4, 6), 32, 0, (2, 3)](a, a, a, 1)
    cu.add[8, 32, 64, 8](a, a, a, 1)
    cu.add[8, 32, 64, None](a, a, a, 1)
    cu.add[8, 32](a, a, a, 1)
    assert [(launched.cluster, launched.grid, launched.shared) for launched in gpu.launches] == [
        ((2, 3, 1), (4, 6, 1), 0), ((8, 1, 1), (8, 1, 1), 64), ((0, 0, 0), (8, 1, 1), 64), ((0, 0, 0), (8, 1, 1), 0),
    ]  # fmt: skip
    assert gpu.calls("cuKernelSetAttribute") == 0, "8 blocks are there without asking"
    cu.add[32, 32, 0, 16](a, a, a, 1)
    cu.add[(4, 4), 32, 0, (4, 4)](a, a, a, 1)
    assert gpu.calls("cuKernelSetAttribute") == 1, "once for each kernel"
    assert repr(cu.add[32, 32, 0, 16]) == "<launch of add with a grid of 32 in clusters of 16, blocks of 32>"


def test_a_cluster_that_the_gpu_or_the_kernel_cannot_have_is_refused(cu: Any, gpu: FakeCuda) -> None:
    a = x()

    def refused(words: str, *key: Any) -> None:
        with pytest.raises(errors.LaunchConfigurationError, match=f"^add: {words}") as caught:
            cu.add[key](a, a, a, 1)
        assert f"{Path(__file__).name}:44: add(const float* a" in str(caught.value)

    gpu.fake.capabilities[0] = (8, 0)
    refused("clusters need sm_90 or later, and this GPU is sm_80", 4, 32, 0, 2)
    cu.add[4, 32, 0, 1](a, a, a, 1)
    gpu.fake.capabilities[0] = (12, 0)
    refused("a cluster of 16 has 16 blocks, and sm_120 allows 8", 16, 32, 0, 16)
    cu.add[16, 32, 0, 8](a, a, a, 1)
    gpu.fake.capabilities[0] = (9, 0)
    for attribute, size in zip((11, 12, 13), (2, 3, 1), strict=True):  # what the kernel's __cluster_dims__ say
        gpu.set_limit(attribute, size)
    cu = opsmith.cuda_source(TEXT)
    refused(r"the launch has clusters of 4, and the kernel is declared with __cluster_dims__ \(2, 3\)", 4, 32, 0, 4)
    refused(r"the grid is \(4, 4\), which is not a whole number of clusters of \(2, 3\)", (4, 4), 32)
    cu.add[(4, 6), 32](a, a, a, 1)
    cu.add[(4, 6), 32, 0, (2, 3)](a, a, a, 1)
    assert [launched.cluster for launched in gpu.launches] == [(1, 1, 1), (8, 1, 1), (0, 0, 0), (2, 3, 1)]


def test_attributes_come_from_the_driver(cu: Any, gpu: FakeCuda) -> None:
    for number in range(5):
        gpu.set_limit(number, 100 + number)
    attributes = cu.with_shared.attributes
    assert attributes.max_threads_per_block == 100
    assert attributes.shared_bytes == 1024, "the compiler's: the driver's may hold what it takes for itself"
    assert attributes.constant_bytes == 102 and attributes.local_bytes == 103 and attributes.registers == 104
    assert attributes.spill_bytes == 0


# --- the driver's faults --------------------------------------------------------------------------------------------


def test_what_the_driver_refuses_is_raised_at_the_launch(cu: Any, gpu: FakeCuda) -> None:
    a = x()
    gpu.fail("cuLaunchKernelEx", 701)
    with pytest.raises(
        errors.LaunchError,
        match=r"add: the launch with a grid of \(2, 3\), blocks of 64 and 16 bytes .* too many resources",
    ) as caught:
        cu.add[(2, 3), 64, 16](a, a, a, 1)
    assert "\nUse a smaller block, or limit the kernel's registers with __launch_bounds__" in str(caught.value)
    assert "\n  test_cuda_source_launch.py:" in str(caught.value) and ": add(const float* a," in str(caught.value)
    assert caught.value.code == 701 and isinstance(caught.value, RuntimeError)
    cu.add[(2, 3), 64, 16](a, a, a, 1)
    assert len(gpu.launches) == 1
    gpu.fail("cuLaunchKernelEx", 700)
    with pytest.raises(
        errors.LaunchError, match=r"(?s)illegal memory access.*An earlier kernel caused this.*compute-sanitizer"
    ):
        cu.add[1, 1](a, a, a, 1)


def test_what_cannot_be_loaded_is_reported_and_tried_again(cu: Any, gpu: FakeCuda) -> None:
    a = x()
    for function, code in (("cuLibraryLoadData", 209), ("cuLibraryGetKernel", 500), ("cuKernelGetAttribute", 1)):
        gpu.fail(function, code)
        with pytest.raises(errors.CudaDriverError, match=f"{function} failed: .*CUDA error {code}"):
            cu.add[1, 1](a, a, a, 1)
    cu.add[1, 1](a, a, a, 1)
    assert len(gpu.launches) == 1


def test_a_thread_that_has_no_context_enters_the_devices(cu: Any, gpu: FakeCuda) -> None:
    a = x()
    cu.add[1, 1](a, a, a, 1)

    def launch(number: int) -> None:
        cu.add[1, 1](a, a, a, number)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(launch, 2).result()
        pool.submit(launch, 3).result()
    with ThreadPoolExecutor(1) as pool:  # and one that loads code first
        pool.submit(lambda: cu.with_shared[1, 1](a)).result()
    assert len(gpu.launches) == 4 and {launched.context for launched in gpu.launches} == {0x1000}


def test_threads_that_launch_at_once_do_not_share_parameters(cu: Any, gpu: FakeCuda) -> None:
    a = x()
    cu.add[1, 1](a, a, a, 0)
    barrier = threading.Barrier(4)

    def launch(start: int) -> None:
        barrier.wait()
        for number in range(start, start + 300):
            cu.add[1, 1](a, a, a, number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(launch, range(1000, 5000, 1000)))
    seen = sorted(launched.values("QQQi")[3] for launched in gpu.launches)
    assert seen == sorted([0, *(start + n for start in range(1000, 5000, 1000) for n in range(300))])
    assert len(cu.add[1, 1]._ready[0].pack.__self__.frames) <= 4


def test_a_launch_within_a_launch_has_its_own_parameters(cu: Any, gpu: FakeCuda) -> None:
    """As from a finaliser that runs between packing and launching."""
    a = x()
    cu.add[1, 1](a, a, a, 1)
    ready = cu.add[1, 1]._ready[0]
    real = ready.launch_kernel

    def interrupted(*arguments: Any) -> int:
        ready.launch_kernel = real
        cu.add[1, 1](a, a, a, 7)
        return int(real(*arguments))

    ready.launch_kernel = interrupted
    cu.add[1, 1](a, a, a, 2)
    assert [launched.values("QQQi")[3] for launched in gpu.launches] == [1, 7, 2]


# --- the source lines in messages -----------------------------------------------------------------------------------


def line_with(text: str, path: str = __file__) -> int:
    """The number of the one line of a file that ends so."""
    (found,) = [n for n, line in enumerate(Path(path).read_text().splitlines(), 1) if line.endswith(text)]
    return found


def test_an_error_shows_the_line_of_the_launch_and_of_the_kernel(cu: Any, gpu: FakeCuda) -> None:
    with pytest.raises(errors.KernelArgumentError) as caught:
        cu.add[1, 1](None, None, None, 1.25)  # at fault
    assert str(caught.value).splitlines()[1:] == [
        f"  test_cuda_source_launch.py:{line_with('# at fault')}: cu.add[1, 1](None, None, None, 1.25)  # at fault",
        f"  test_cuda_source_launch.py:{line_with('y[0] = a[0] + b[n]; }')}: "
        "add(const float* a, const float* b, float* y, int n)",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n__global__ void k(int n) {}\n", "k.cu:2: k(int n)"),
        ("// __global__ void k(\n/* __global__ void k(\n */ __global__\n  void k(int n) {}\n", "k.cu:4: k(int n)"),
        ("__global__ void k2(int k) {}\n__global__ void __launch_bounds__(32) k (int n) {}\n", "k.cu:2: k(int n)"),
        ('#include "k.cuh"\n', "k.cuh:1: k(int n)"),
        ("#define KERNEL(name) __global__ void name\nKERNEL(k)(int) {}\n", "  k(int)"),
    ],
    ids=["file", "comments", "other names", "header", "macro"],
)
def test_the_line_of_a_kernel_is_found_where_the_author_declares_it(
    tmp_path: Path, gpu: FakeCuda, text: str, line: str
) -> None:
    (tmp_path / "k.cuh").write_text("namespace ns {} __global__ void k(int n) {}\n")
    (tmp_path / "k.cu").write_text(text)
    cu = opsmith.cuda_source(tmp_path / "k.cu")
    with pytest.raises(errors.KernelArgumentError) as caught:
        cu.k[1, 1](1.5)
    assert str(caught.value).splitlines()[2].endswith(line)


def test_every_error_of_a_launch_says_where_it_was_asked_for(cu: Any, gpu: FakeCuda) -> None:
    gpu.set_limit(driver_module.MAX_THREADS_PER_BLOCK, 256)
    faults: list[Any] = [
        lambda: cu.add[0, 1],
        lambda: cu.add(1),
        lambda: cu.add[1, 512](None, None, None, 1),
        lambda: cu.add[1, 1](1),
        lambda: cu.add[1, 1](x(), torch.zeros(3), x(), 1),
        lambda: cu.set_constant("tabel", 1),
        lambda: cu.set_constant("table", 1),
        lambda: cu.scale[1, 1],
        lambda: cu["scale<floot, 1>"].compile("sm_90"),
        lambda: cu["add<float>"],
        lambda: cu.nope,
    ]
    for fault in faults:
        with pytest.raises(opsmith.OpsmithError) as caught:
            fault()
        line = fault.__code__.co_firstlineno
        assert f"\n  test_cuda_source_launch.py:{line}: lambda: " in str(caught.value)


# --- capture and edits ----------------------------------------------------------------------------------------------


def test_code_is_loaded_while_a_graph_is_captured(cu: Any, gpu: FakeCuda) -> None:
    a = x()
    cu.compile()
    gpu.capture(True)
    cu.add[1, 1](a, a, a, 1)
    cu["scale<float, 2>"][1, 1](a, a, 1.0, 1)
    assert len(gpu.launches) == 2
    assert gpu.calls("cuThreadExchangeStreamCaptureMode") == 4, "relaxed while it loads, and as before after"


def test_an_edit_is_noticed_by_the_next_launch_and_not_while_a_graph_is_captured(tmp_path: Path, gpu: FakeCuda) -> None:
    path = tmp_path / "k.cu"
    path.write_text("__global__ void first(int n) {}\n")
    cu = opsmith.cuda_source(path)
    launch = cu.first[1, 1]
    launch(1)
    path.write_text("__global__ void first(double n, int m) {}\n")
    gpu.capture(True)
    launch(2)
    cu.first[2, 2](3)
    gpu.capture(False)
    launch(2.5, 7)
    assert [launched.parameters for launched in gpu.launches] == [
        [struct.pack("<i", 1)], [struct.pack("<i", 2)], [struct.pack("<i", 3)],
        [struct.pack("<d", 2.5), struct.pack("<i", 7)],
    ]  # fmt: skip
    path.write_text("__global__ void first(double n, int m) { oh dear }\n")
    for _ in range(2):
        with pytest.raises(errors.CompileError, match=r"k\.cu:1: error"):
            launch(2.5, 7)
    path.write_text("__global__ void other() {}\n")
    with pytest.raises(errors.KernelNotFoundError, match="it has other"):
        launch(2.5, 7)
    path.write_text("__global__ void first(int n) {}\n")
    launch(5)
    assert gpu.launches[-1].parameters == [struct.pack("<i", 5)]


def test_files_of_opsmith_itself_are_not_watched(gpu: FakeCuda) -> None:
    cu = opsmith.cuda_source("#include <opsmith/pointwise/cuda_types.h>\n__global__ void k() {}\n")
    cu.k[1, 1]()
    assert cu.k[1, 1]._ready[0].changed is None


# --- constants ------------------------------------------------------------------------------------------------------


def test_a_constant_is_set_before_and_after_code_is_loaded(cu: Any, gpu: FakeCuda) -> None:
    a = x()
    cu.set_constant("table", [1, 2, 3, 4])
    assert gpu.variable_bytes("table") is None, "nothing is loaded"
    cu.with_shared[1, 1](a)
    assert gpu.variable_bytes("table") == struct.pack("<4f", 1, 2, 3, 4)
    assert gpu.calls("cuStreamSynchronize") == 1, "there before any stream can launch"
    cu.set_constant("table", torch.tensor([5.0, 6, 7, 8]))
    assert gpu.variable_bytes("table") == struct.pack("<4f", 5, 6, 7, 8)
    cu["scale<float, 2>"][1, 1](a, a, 1.0, 1)
    assert gpu.variable_bytes("table") == struct.pack("<4f", 5, 6, 7, 8), "and in what is loaded later"
    assert gpu.calls("cuStreamSynchronize") == 2, "setting waits for nothing"


def test_a_tensor_on_the_gpu_is_copied_there_on_the_current_stream(cu: Any, gpu: FakeCuda) -> None:
    a, value = x(), on_gpu(torch.tensor([1.0, 2, 3, 4]))
    cu.with_shared[1, 1](a)
    cu.set_constant("table", value)
    assert gpu.calls("cuMemcpyDtoDAsync_v2") == 1 and gpu.calls("cuMemcpyHtoDAsync_v2") == 0
    torch.Tensor.zero_(value)
    cu["scale<float, 2>"][1, 1](a, a, 1.0, 1)
    assert gpu.variable_bytes("table") == struct.pack("<4f", 1, 2, 3, 4), "what it was when it was set"
    assert gpu.fake.waited == 1


def test_constants_of_every_type(cu: Any, gpu: FakeCuda) -> None:
    cu.set_constant("number", 7)
    cu.set_constant("corners", [(1, 2, 3, 4), (5, 6, 7, 8)])
    cu.set_constant("settings", Params(b"t", 2.5, 9))
    cu.set_constant("ns::halves", (1.0, -2.0))
    cu.with_shared[1, 1](x())
    assert gpu.variable_bytes("number") == struct.pack("<i", 7)
    assert gpu.variable_bytes("corners") == struct.pack("<8f", *range(1, 9))
    assert gpu.variable_bytes("settings") == bytes(Params(b"t", 2.5, 9))
    halves = torch.tensor([1.0, -2.0], dtype=torch.bfloat16)
    assert gpu.variable_bytes("_ZN2ns6halvesE") == bytes(halves.view(torch.uint8).tolist())
    cu.set_constant("corners", numpy.arange(8.0).reshape(2, 4))
    assert gpu.variable_bytes("corners") == struct.pack("<8f", *range(8))
    cu.set_constant("settings", bytes(24))
    assert gpu.variable_bytes("settings") == bytes(24)
    cu.set_constant("ns::halves", halves)
    assert gpu.variable_bytes("_ZN2ns6halvesE") == bytes(halves.view(torch.uint8).tolist())


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "tabel",
            [1],
            "'tabel' is not in the source; its constants are: table, fixed, number, corners, settings, ns::halves",
        ),
        ("fixed", [1, 2], "is declared const"),
        ("table", [1, 2, 3], "takes 4 numbers .float., not 3"),
        ("table", 1.0, "takes 4 numbers .float., not 1"),
        ("table", torch.zeros(3), "has 16 bytes and takes a tensor of 4 elements of float32, not of 3"),
        ("table", torch.zeros(4, dtype=torch.float64), "holds float and takes a float32 tensor, not float64"),
        ("table", [1, 2, 3, "4"], "takes a float or an int, not str '4'"),
        ("table", "abcd", "takes 4 numbers"),
        ("table", bytes(3), "of 16 bytes, and was given 3"),
        ("number", 2**31, "holds -2147483648 to 2147483647"),
        ("number", 1.5, "takes an int, not the float 1.5"),
        ("settings", (1, 2, 3), "takes a ctypes.Structure"),
        ("settings", bytes(5), "of 24 bytes, and was given 5"),
    ],
)
def test_a_constant_of_another_type_or_size_is_refused(cu: Any, name: str, value: Any, words: str) -> None:
    with pytest.raises(errors.ConstantError, match=words):
        cu.set_constant(name, value)


def test_a_constant_is_not_set_while_a_graph_is_captured(cu: Any, gpu: FakeCuda) -> None:
    gpu.capture(True)
    with pytest.raises(errors.ConstantError, match="while a CUDA graph is captured"):
        cu.set_constant("number", 1)


def test_a_constant_survives_an_edit_and_is_asked_for_again_where_it_no_longer_fits(
    tmp_path: Path, gpu: FakeCuda
) -> None:
    path = tmp_path / "k.cu"
    text = "__constant__ int c[2];\n__global__ void k(int* x) { *x = c[0]; }\n"
    path.write_text(text)
    cu = opsmith.cuda_source(path)
    cu.set_constant("c", [3, 4])
    cu.k[1, 1](None)
    path.write_text(text.replace("c[0]", "c[1]"))
    cu.k[1, 1](None)
    assert gpu.calls("cuLibraryLoadData") == 2 and gpu.variable_bytes("c") == struct.pack("<2i", 3, 4)
    path.write_text(text.replace("c[2]", "c[3]"))
    with pytest.raises(
        errors.ConstantError, match="'c' has 12 bytes now and was set when it had 8: call set_constant again"
    ):
        cu.k[1, 1](None)
    cu.set_constant("c", [1, 2, 3])
    cu.k[1, 1](None)
    assert gpu.variable_bytes("c") == struct.pack("<3i", 1, 2, 3)


# --- the driver itself ----------------------------------------------------------------------------------------------


def test_a_machine_without_a_driver_says_so() -> None:
    with pytest.raises(errors.NoGpuError, match="The CUDA driver cannot be loaded"):
        driver_module.Driver("libno_such_driver.so.1")


def test_a_side_stream_is_destroyed_whatever_happens(gpu: FakeCuda) -> None:
    with pytest.raises(ZeroDivisionError), gpu.side_stream():
        raise ZeroDivisionError
    assert gpu.calls("cuStreamDestroy_v2") == 1 and gpu.calls("cuStreamSynchronize") == 0
