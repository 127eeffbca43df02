"""Run by test_named_launch_driver.py in a process of its own, with a fake driver: prints the name of each case that
holds.

Its argument: the directory with the libraries that stand for the driver and for torch's CUDA part.
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

import opsmith
from kernels.fake_cuda import FakeCuda, Launched, on_gpu
from opsmith.errors import NvrtcNotFoundError, ReferenceRunsWarning
from opsmith.kernels import host
from opsmith.launch.driver import LARGE_CLUSTER_ALLOWED, MAX_DYNAMIC_SHARED_BYTES, substituted
from opsmith.toolchain.shipped import Elsewhere

# Before host code is loaded, which asks it for the current stream.
ctypes.CDLL(f"{sys.argv[1]}/libtorch_cuda.so", mode=ctypes.RTLD_GLOBAL)
HERE = Path(__file__).parent
cu = opsmith.cuda_source(HERE / "named_kernels.cu")
ext = opsmith.extension(
    "on_fake_gpu", [HERE / "named_launches.cpp"], kernels=cu, extra_cflags=["-DAS_ON_GPU", f"-I{HERE}"]
)
SCHEMAS = {
    "scaled_forward": "(Tensor x, float factor, int extra) -> Tensor",
    "reversed": "(Tensor x, int block, int shared_bytes) -> Tensor",
    "kinds": "(Tensor x, int a, int e, float j) -> Tensor",
    "mistaken": "(Tensor x, int which) -> Tensor",
    "late": "(Tensor x, bool decline) -> Tensor",
    "gpu": "(Tensor x) -> (int, int, int)",
    "capturing": "(Tensor x) -> bool",
    "index": "(int index) -> int",
}
operators = {name: getattr(ext, name).as_operator(lambda f, s=schema: f + s) for name, schema in SCHEMAS.items()}
cpp = SimpleNamespace(**{name: operator.call for name, operator in operators.items()})
cuda = FakeCuda()
x = torch.arange(600.0)


def forgotten() -> None:
    """As in a new process: nothing is loaded."""
    cu._modules.clear()
    for kernel in cu._named.values():
        kernel._launches.clear()
    host.attach(ctypes.CDLL(str(ext.build())), cu, "test", __name__)
    cuda._library.fake_reset(0x1000)
    cuda.fake.count, cuda.fake.current, cuda.fake.streams = 2, 0, {0: 0xABC0, 1: 0xABC1}
    cuda.fake.is_capturing = False
    cpp.index(0)


def pair(launch: Callable[[], Any], call: Callable[[], torch.Tensor]) -> tuple[Launched, Launched, torch.Tensor]:
    """The same launch from Python and from C++, and the tensor that C++ returned."""
    launch()
    returned = call()
    first, second = cuda.launches
    return first, second, returned


def address(value: torch.Tensor) -> bytes:
    return value.data_ptr().to_bytes(8, "little")


def the_driver_is_given_what_python_gives_it() -> None:
    for index in (0, 1):
        forgotten()
        cpp.index(index)
        y = on_gpu(torch.empty(600), index)
        first, second, out = pair(
            lambda index=index, y=y: cu["ns::scale<float, 4>"][-(-600 // 128), 64](on_gpu(x, index), y, 2.5, 603),
            lambda: cpp.scaled_forward(x, 2.5, 3),
        )
        assert second.parameters[0] == address(x) and second.parameters[1] == address(out)
        assert first.parameters[1] == address(y)
        assert first.parameters[2:] == second.parameters[2:] and first.parameters[0] == second.parameters[0]
        assert first._replace(parameters=[], context=0) == second._replace(parameters=[], context=0)
        assert second.grid == (5, 1, 1) and second.block == (64, 1, 1) and second.stream == 0xABC0 + index
        assert second.context == 0x1000 + index, "the tensors' own"
        assert cuda.context == 0x1000, "and the one before again"


def every_kind_of_parameter_has_the_same_bytes() -> None:
    forgotten()

    class Pair(ctypes.Structure):
        _fields_ = (("first", ctypes.c_double), ("second", ctypes.c_int))

    y, given = on_gpu(torch.empty(1)), on_gpu(torch.zeros(8))
    first, second, _ = pair(
        lambda: cu.kinds[1, 32](
            y, -128, 200, -300, 40000, 1000, 7, -8, 9, True, 0.3, 0.1, 1.5, 2.75, Pair(3.5, 4), given, None
        ),
        lambda: cpp.kinds(given.as_subclass(torch.Tensor), -128, 1000, 0.3),
    )
    # A float literal of C++ is rounded before it becomes a double; what pads a struct is anybody's.
    for position, (mine, theirs) in enumerate(zip(first.parameters, second.parameters, strict=True)):
        if position == 11:
            assert struct.unpack("<d", theirs) == (float(torch.tensor(0.1)),)
        elif position == 14:
            assert mine[:12] == theirs[:12]
        elif position:
            assert mine == theirs, position


def shared_memory_beyond_48_kib_is_allowed_once_and_for_both() -> None:
    forgotten()
    rows = torch.zeros(2, 64)
    cpp.reversed(rows, 64, 256)
    assert cuda.calls("cuKernelSetAttribute") == 0
    for _ in range(2):
        cpp.reversed(rows, 64, 100_000)
    assert cuda.calls("cuKernelSetAttribute") == 1
    cu.reversed[2, 64, 60_000](on_gpu(rows), on_gpu(rows), 64)
    assert cuda.calls("cuKernelSetAttribute") == 1, "Python knows what C++ has allowed"
    cu.reversed[2, 64, 120_000](on_gpu(rows), on_gpu(rows), 64)
    cpp.reversed(rows, 64, 110_000)
    assert cuda.calls("cuKernelSetAttribute") == 2, "and C++ asks Python"
    function, _ = cu._function("reversed", 0)
    assert cuda.attribute(function.handle, MAX_DYNAMIC_SHARED_BYTES, 0) == 120_000
    assert [each.shared for each in cuda.launches] == [256, 100_000, 100_000, 60_000, 120_000, 110_000]
    assert "and cuda:0 has 232448" in message(lambda: cpp.reversed(rows, 64, 300_000))


def a_kernel_declared_with_a_cluster_of_sixteen_may_have_it() -> None:
    forgotten()
    for attribute, size in zip((11, 12, 13), (16, 1, 1), strict=True):  # what the kernel's __cluster_dims__ say
        cuda.set_limit(attribute, size)
    cpp.scaled_forward(x, 2.0, 0)
    assert (cuda.calls("cuKernelSetAttribute"), len(cuda.launches)) == (1, 1)
    kernel = cu["ns::scale<float, 4>"]
    assert cuda.attribute(cu._function(kernel.name, 0)[0].handle, LARGE_CLUSTER_ALLOWED, 0) == 1


def message(call: Callable[[], Any]) -> str:
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it ran")


def a_name_is_looked_up_once_on_each_gpu() -> None:
    forgotten()
    with mock.patch.object(cu, "_function", wraps=cu._function) as asked:
        for index in (0, 1, 0, 1):
            cpp.index(index)
            for _ in range(3):
                cpp.scaled_forward(x, 2.0, 0)
        assert asked.call_args_list == [mock.call("ns::scale<float, 4>", 0), mock.call("ns::scale<float, 4>", 1)]
    assert cuda.calls("cuLibraryLoadData") == 1, "one library, which both use"
    assert {each.context for each in cuda.launches} == {0x1000, 0x1001}


def a_thread_that_has_not_used_the_gpu_is_given_its_context() -> None:
    forgotten()
    cpp.scaled_forward(x, 2.0, 0)
    cuda._library.fake_reset(0)
    cpp.scaled_forward(x, 2.0, 0)
    assert cuda.launches[0].context == 0x1000 and cuda.context == 0


def failures_have_the_kernels_line() -> None:
    forgotten()
    cuda.fail("cuLaunchKernelEx", 701)
    text = message(lambda: cpp.scaled_forward(x, 2.0, 0))
    assert "ns::scale<float, 4> was not launched with grid (5, 1, 1), block (64, 1, 1)" in text, text
    assert "too many resources requested for launch (CUDA error 701)" in text, text
    assert "named_kernels.cu:12: ns::scale<float, 4>(const float* x" in text, text
    cpp.scaled_forward(x, 2.0, 0)
    assert len(cuda.launches) == 1, "and the next one works"


def mistakes_have_the_emulators_words() -> None:
    from kernels.test_named_launch import MISTAKES

    for which, pattern in MISTAKES:
        forgotten()
        cuda._library.fake_attribute(0, 64 if which == 9 else 1024)
        text = message(lambda which=which: cpp.mistaken(torch.ones(64), which))
        assert re.search(pattern, text, re.DOTALL), (which, text)
        assert cuda.launches == []


def a_kernel_can_be_loaded_during_a_capture() -> None:
    forgotten()
    cuda.capture(True)
    cpp.scaled_forward(x, 2.0, 0)
    assert cpp.capturing(x) is True
    cuda.capture(False)
    assert cpp.capturing(x) is False
    assert len(cuda.launches) == 1


def the_gpu_is_the_drivers() -> None:
    forgotten()
    assert cpp.gpu(x) == (132, 232448, 90)


def without_a_compiler_the_reference_is_to_serve() -> None:
    forgotten()
    missing = mock.patch.object(cu, "_function", side_effect=NvrtcNotFoundError(["nowhere"], "cuda13"))
    other = mock.patch.object(host, "built_elsewhere", return_value=Elsewhere(("13", "12"), None))
    with missing, other, warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        for _ in range(2):
            assert cpp.scaled_forward(x, 2.0, 0) is NotImplemented
    assert [each.category for each in met] == [ReferenceRunsWarning], met
    assert "is prebuilt for CUDA 13, torch is built for CUDA 12, and it cannot be compiled here" in str(met[0].message)
    assert str(met[0].message).endswith("the package's wheel for CUDA 12, or a torch that is built for CUDA 13.")
    assert cpp.scaled_forward(x, 13.0, 0) is NotImplemented, "the author's own"
    assert isinstance(cpp.scaled_forward(x, 2.0, 0), torch.Tensor), "it is asked for again"


def a_kernel_that_is_missing_after_a_launch_is_an_error() -> None:
    """What the first launch has changed in place would be changed by the reference again."""
    forgotten()
    assert cpp.late(x, True) is NotImplemented, "the author's own decline is taken at any time"
    find = cu._function

    def missing(name: str, index: int) -> Any:
        if name == "reversed":
            raise NvrtcNotFoundError(["nowhere"], "cuda13")
        return find(name, index)

    with mock.patch.object(cu, "_function", missing), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "NVRTC" in message(lambda: cpp.mistaken(torch.ones(64), 12))
    assert [each.grid for each in cuda.launches][-1:] == [(1, 1, 1)]


def an_extension_without_kernels_says_so() -> None:
    flags = ["-DAS_ON_GPU", f"-I{HERE}"]
    other = opsmith.extension("without_kernels", [HERE / "named_launches.cpp"], extra_cflags=flags)
    operator = other.mistaken.as_operator(lambda f: f + SCHEMAS["mistaken"])
    text = message(lambda: operator.call(x, 0))
    assert "the extension has no kernels: opsmith.extension(..., kernels=cu)" in text, text


if __name__ == "__main__":
    with substituted(cuda):
        for name in re.findall(r"^def (\w+)\(\) -> None:", Path(__file__).read_text(), re.MULTILINE):
            try:
                globals()[name]()
                print(f"holds {name}", flush=True)
            except BaseException:
                print(f"fails {name}\n{traceback.format_exc()}fails", flush=True)
