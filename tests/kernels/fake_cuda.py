"""A fake GPU: fake_cuda.cpp in place of libcuda, and CPU tensors that report to be on a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from opsmith.launch.driver import Driver, TorchSide
from opsmith.toolchain import compile_shared_library


class OnGpu(torch.Tensor):
    """A tensor in host memory that takes itself for a GPU's."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    index = 0

    def get_device(self) -> int:  # type: ignore[override]
        return self.index

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", self.index)


def on_gpu(tensor: torch.Tensor, index: int = 0) -> Any:
    there = tensor.as_subclass(OnGpu)
    there.index = index
    return there


class Launched(NamedTuple):
    """A launch as the driver was given it; `parameters` are bytes, a piece each."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    context: int
    parameters: list[bytes]
    overlapped: bool
    cluster: tuple[int, ...]  # zeros without one

    def values(self, formats: str) -> list[Any]:
        """The parameters unpacked, a letter of struct's for each."""
        assert len(formats) == len(self.parameters)
        return [struct.unpack(f"<{f}", p)[0] for f, p in zip(formats, self.parameters, strict=True)]


class FakeTorch(TorchSide):
    def __init__(self) -> None:
        self.count = 1
        self.current = 0
        self.streams: dict[int, int] = {}
        self.is_capturing = False
        self.capabilities: dict[int, tuple[int, int]] = {}
        self.waited = 0

    def available(self) -> bool:
        return True

    def device_count(self) -> int:
        return self.count

    def current_device(self) -> int:
        return self.current

    def current_stream(self, index: int) -> int:
        return self.streams.get(index, 0)

    def capturing(self) -> bool:
        return self.is_capturing

    def capability(self, index: int) -> tuple[int, int]:
        return self.capabilities.get(index, (9, 0))

    def written(self, index: int) -> Callable[[], object]:
        def wait() -> None:
            self.waited += 1

        return wait

    @contextlib.contextmanager
    def on(self, index: int) -> Iterator[None]:
        before, self.current = self.current, index
        try:
            yield
        finally:
            self.current = before


TORCH_CUDA = """
extern "C" int aoti_torch_get_current_cuda_stream(int index, void** stream) {
  *stream = reinterpret_cast<void*>(0xABC0ul + index);
  return 0;
}
"""


def libraries_in(directory: Path) -> None:
    """Puts the fake driver there, and a library that knows the current streams in place of torch's: a process with
    LD_LIBRARY_PATH set to it finds both, where the second is loaded for all first."""
    (directory / "torch_cuda.cpp").write_text(TORCH_CUDA)
    soname = "libtorch_cuda.so"
    command = ["c++", "-shared", "-fPIC", f"-Wl,-soname,{soname}", directory / "torch_cuda.cpp", "-o"]
    subprocess.run([*command, directory / soname], check=True)
    (directory / "libcuda.so.1").symlink_to(library_path())


def process(script: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script in a new process that finds the fake driver; the directory is its argument."""
    libraries_in(directory)
    paths = os.pathsep.join([str(script.parents[1]), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, str(script), str(directory)],
        env={**os.environ, "LD_LIBRARY_PATH": str(directory), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


@functools.cache
def library_path() -> Path:
    return compile_shared_library("fake_cuda", [Path(__file__).with_suffix(".cpp")], abi="plain")


class FakeCuda(Driver):
    """The fake driver, and what it has seen."""

    def __init__(self) -> None:
        self.fake = FakeTorch()
        super().__init__(str(library_path()), self.fake)
        for name, arguments, result in (
            ("fake_reset", [ctypes.c_void_p], None),
            ("fake_kernel", [ctypes.c_size_t], ctypes.c_char_p),
            ("fake_shape", [ctypes.c_size_t], ctypes.POINTER(ctypes.c_uint)),
            ("fake_cluster", [ctypes.c_size_t], ctypes.POINTER(ctypes.c_uint)),
            ("fake_stream", [ctypes.c_size_t], ctypes.c_uint64),
            ("fake_context", [ctypes.c_size_t], ctypes.c_uint64),
            ("fake_bytes", [ctypes.c_size_t], ctypes.c_void_p),
            ("fake_overlapped", [ctypes.c_size_t], ctypes.c_bool),
            ("fake_size", [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_uint),
            ("fake_current", [], ctypes.c_uint64),
            ("fake_variable", [ctypes.c_char_p, ctypes.c_void_p], ctypes.c_void_p),
        ):
            function = getattr(self._library, name)
            function.argtypes, function.restype = arguments, result
        self._library.fake_reset(0x1000)

    def fail(self, function: str, code: int) -> None:
        """The next call of a driver's function returns an error."""
        self._library.fake_fail(function.encode(), code)

    def capture(self, now: bool) -> None:
        self.fake.is_capturing = now
        self._library.fake_capturing(now)

    def set_limit(self, attribute: int, value: int) -> None:
        self._library.fake_attribute(attribute, value)

    def set_version(self, version: int) -> None:
        """The driver's, 12030 for CUDA 12.3."""
        self._library.fake_version(version)

    def calls(self, function: str) -> int:
        return int(self._library.fake_calls(function.encode()))

    def variable_bytes(self, name: str) -> bytes | None:
        size = ctypes.c_size_t()
        address = self._library.fake_variable(name.encode(), ctypes.byref(size))
        return None if address is None else ctypes.string_at(address, size.value)

    @property
    def context(self) -> int:
        """This thread's current one."""
        return int(self._library.fake_current())

    @property
    def launches(self) -> list[Launched]:
        return [self._launched(number) for number in range(self._library.fake_launches())]

    def _launched(self, number: int) -> Launched:
        library = self._library
        shape = library.fake_shape(number)
        sizes = [library.fake_size(number, each) for each in range(library.fake_parameters(number))]
        data = ctypes.string_at(library.fake_bytes(number), sum(sizes))
        starts = [sum(sizes[:each]) for each in range(len(sizes))]
        return Launched(
            library.fake_kernel(number).decode(),
            tuple(shape[0:3]),
            tuple(shape[3:6]),
            shape[6],
            library.fake_stream(number),
            library.fake_context(number),
            [data[start : start + size] for start, size in zip(starts, sizes, strict=True)],
            library.fake_overlapped(number),
            tuple(library.fake_cluster(number)[0:3]),
        )
