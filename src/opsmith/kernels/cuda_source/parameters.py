"""A kernel's parameters: what each takes from Python, and how that becomes the bytes that the kernel reads.

`convert` turns an argument into the value that struct packs, or raises an error that says why the parameter does not
take it. For an ordinary tensor it is not called: see plan.py.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
import struct
from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import Any, NamedTuple

import torch

from ...errors import KernelArgumentError, KernelValueError, OpsmithError
from .types import NUMBERS, DeviceType, Number, element_dtypes, pointee, vector

_STRIDE = re.compile(r"stride|pitch|step|leading|(?:^|_)ld[a-z]?(?:_|$)", re.IGNORECASE)
_DISPATCHES = torch._C._disabled_torch_dispatch_impl


class Place(NamedTuple):
    """A parameter in messages: its kernel, the line that declares the kernel, its own position, name and type."""

    kernel: str
    declared: Callable[[], str]
    position: int
    name: str
    type_name: str

    def __str__(self) -> str:
        return f"parameter {repr(self.name) if self.name else self.position + 1} ({self.type_name})"

    @property
    def variable(self) -> str:
        """What code in a message calls the argument."""
        return self.name or "x"

    def type_error(self, what: str) -> OpsmithError:
        return KernelArgumentError(self.kernel, f"{self} {what}", self.declared())

    def value_error(self, what: str) -> OpsmithError:
        return KernelValueError(self.kernel, f"{self} {what}", self.declared())


class Parameter:
    """One parameter. `format` is struct's letter for it; a contiguous tensor of `dtype` on the right device needs no
    further check."""

    dtype: torch.dtype | None = None
    names: Sequence[str] = ()  # of all the kernel's parameters

    def __init__(self, place: Place, type: DeviceType, format: str) -> None:
        self.place = place
        self.type = type
        self.format = format

    def convert(self, value: Any, args: Sequence[Any], index: int) -> Any:
        """The argument as struct packs it; `args` are all of the launch, `index` its device. Raises KernelArgumentError
        or KernelValueError."""
        raise NotImplementedError


def parameter(place: Place, type: DeviceType) -> Parameter:
    """The kind of parameter for a type."""
    if type.name.endswith("&"):
        raise place.type_error("is a reference, which a kernel cannot take: declare it by value or as a pointer")
    element = pointee(type.name)
    if element is not None:
        return Pointer(place, type, element)
    if (number := NUMBERS.get(type.name)) is not None:
        special = {torch.bool: Flag, torch.bfloat16: BFloat16}.get(number.dtype)
        return (special or (Integer if number.is_integer else Float))(place, type, number.format)
    if (made := vector(type.name)) is not None and made[0].size * made[1] == type.size:
        return Vector(place, type, *made)
    return Struct(place, type, f"{type.size}s")


class Pointer(Parameter):
    """Takes a tensor of the element's dtype, None for a null pointer, and ctypes.c_void_p for any address."""

    def __init__(self, place: Place, type: DeviceType, element: str) -> None:
        super().__init__(place, type, "Q")
        self.element = element
        self.dtypes = element_dtypes(element)
        made = vector(element)
        self.alignment = made[0].size * made[1] if made is not None and made[1] != 3 else 1
        if len(self.dtypes) == 1 and self.alignment == 1 and not self.dtypes[0].is_complex:
            self.dtype = self.dtypes[0]

    def convert(self, value: Any, args: Sequence[Any], index: int) -> Any:
        if isinstance(value, torch.Tensor):
            return self._address(value, args, index)
        if value is None:
            return 0
        if isinstance(value, c_void_p):
            return value.value or 0
        if isinstance(value, int):
            raise self.place.type_error(
                f"takes a tensor, not the number {value!r}; for a raw address pass ctypes.c_void_p({value!r})"
            )
        raise self.place.type_error(f"takes {self._taken()}, not {named(value)}")

    def _taken(self) -> str:
        if self.element == "void":
            return "a tensor of any dtype, None or ctypes.c_void_p"
        if not self.dtypes:
            return "a tensor of bytes (torch.uint8), None or ctypes.c_void_p"
        return f"{article(self.dtypes)} {' or '.join(map(short, self.dtypes))} tensor, None or ctypes.c_void_p"

    def _address(self, tensor: torch.Tensor, args: Sequence[Any], index: int) -> int:
        place, variable = self.place, self.place.variable
        if type(tensor).__torch_dispatch__ is not _DISPATCHES:
            raise place.type_error(
                f"was given a {type(tensor).__name__}, which has no memory on a GPU. Inside torch.compile and other "
                "transforms call the kernel through an op: register_kernel(...) with the launch in it"
            )
        if tensor.layout is not torch.strided:
            raise place.type_error(
                f"takes a dense tensor, not one of layout {tensor.layout}: {variable} = {variable}.to_dense()"
            )
        if tensor.device.type != "cuda" and tensor.get_device() != index:
            raise not_on_gpu(place, tensor)
        if tensor.get_device() != index:
            raise place.value_error(
                f"was given a tensor on {tensor.device}, and the first tensor of the launch is on cuda:{index}: all "
                f"must be on one device, {variable} = {variable}.to('cuda:{index}')"
            )
        if self.element != "void" and tensor.dtype not in (self.dtypes or (torch.uint8,)):
            raise place.type_error(
                f"takes {self._taken()}, not {named(tensor)}. "
                + (
                    f"Convert it, {variable} = {variable}.to({self.dtypes[0]}), or launch a kernel for "
                    f"{short(tensor.dtype)}"
                    if self.dtypes
                    else f"Give its bytes, {variable} = {variable}.view(torch.uint8)"
                )
            )
        if tensor.is_conj() or tensor.is_neg():
            raise place.value_error(
                "was given a lazily conjugated or negated view, whose memory a kernel would read as it is: "
                f"{variable} = {variable}.{'resolve_conj' if tensor.is_conj() else 'resolve_neg'}()"
            )
        self._check_strides(tensor, args)
        try:
            address = tensor.data_ptr()
        except RuntimeError as error:
            raise place.type_error(
                f"was given a tensor without memory ({str(error).splitlines()[0]}). Under vmap and other transforms "
                "call the kernel through an op: register_kernel(...) with the launch in it"
            ) from None
        if address % self.alignment:
            raise place.value_error(
                f"points to {self.element}, which the GPU reads at multiples of {self.alignment} bytes, and the tensor "
                f"begins {address % self.alignment} bytes after one: {variable} = {variable}.clone()"
            )
        return address

    def _check_strides(self, tensor: torch.Tensor, args: Sequence[Any]) -> None:
        """A kernel without stride parameters reads memory as contiguous."""
        if tensor.is_contiguous():
            return
        # A size passed as a size may equal a stride by chance: of a transposed matrix it always does.
        numbers = {
            value
            for name, value in zip(self.names, args, strict=False)
            if isinstance(value, int) and _STRIDE.search(name)
        }
        missing = [
            dimension
            for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))
            if size > 1 and stride != 1 and stride not in numbers
        ]
        if missing:
            variable = self.place.variable
            passed = ", ".join(f"{variable}.stride({dimension})" for dimension in missing)
            raise self.place.value_error(
                f"was given a tensor that is not contiguous, of shape {tuple(tensor.shape)} and strides "
                f"{tensor.stride()}. Make it contiguous, {variable} = {variable}.contiguous(), or let the kernel take "
                f"its strides, in parameters with 'stride' in their names, and pass them: {passed}"
            )


class Integer(Parameter):
    """Takes an int, a bool or a NumPy integer that fits."""

    def convert(self, value: Any, args: Sequence[Any], index: int) -> Any:
        if type(value) is int:
            return value
        return integer(self.place, value)

    def check(self, value: int) -> None:
        """Raises where struct has refused: a value that does not fit."""
        least, greatest = NUMBERS[self.type.name].bounds
        if not least <= value <= greatest:
            raise self.place.value_error(
                f"holds {least} to {greatest}, and {value} does not fit: pass a value in this range, or let the kernel "
                "take a wider type"
            )


class Flag(Parameter):
    """Takes True or False, and the numbers 1 and 0."""

    def convert(self, value: Any, args: Sequence[Any], index: int) -> Any:
        if type(value) is bool:
            return value
        found = integer(self.place, value)
        if found not in (0, 1):
            raise self.place.value_error(f"holds True or False, not {value!r}")
        return bool(found)


class Float(Parameter):
    """Takes a float or an int, rounded to the parameter's type. Raises for a finite number that is too large."""

    def convert(self, value: Any, args: Sequence[Any], index: int) -> Any:
        if type(value) is float:
            return value
        return real(self.place, value)

    def check(self, value: float) -> None:
        try:
            struct.pack(f"<{self.format}", value)
        except OverflowError:
            raise self.place.value_error(_too_large(value)) from None


class BFloat16(Parameter):
    """A float, rounded to its upper 16 bits, to the nearest even."""

    def convert(self, value: Any, args: Sequence[Any], index: int) -> Any:
        number = real(self.place, value)
        try:
            (bits,) = struct.unpack("<I", struct.pack("<f", number))
        except OverflowError:
            raise self.place.value_error(_too_large(value)) from None
        if math.isnan(number):
            return 0x7FC0
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        if rounded & 0x7FFF == 0x7F80 and not math.isinf(number):
            raise self.place.value_error(_too_large(value))
        return rounded


class Vector(Parameter):
    """float4 and the like: takes a tuple of numbers; float2 and double2 also a complex number."""

    def __init__(self, place: Place, type: DeviceType, number: Number, count: int) -> None:
        super().__init__(place, type, f"{type.size}s")
        part = parameter(place, number_type(number))
        self.parts = [part] * count
        self.packed = struct.Struct(f"<{part.format * count}")

    def convert(self, value: Any, args: Sequence[Any], index: int) -> Any:
        if isinstance(value, complex) and len(self.parts) == 2:
            value = (value.real, value.imag)
        if isinstance(value, (str, bytes, torch.Tensor)) or not isinstance(value, Sequence):
            raise self.place.type_error(f"takes a tuple of {len(self.parts)} numbers, not {named(value)}")
        if len(value) != len(self.parts):
            raise self.place.type_error(f"takes {len(self.parts)} numbers, not {len(value)}")
        return pack(
            self.packed, self.parts, [p.convert(v, args, index) for p, v in zip(self.parts, value, strict=True)]
        )


class Struct(Parameter):
    """Any other type, by value: takes its bytes, or a ctypes.Structure of the same layout."""

    def convert(self, value: Any, args: Sequence[Any], index: int) -> Any:
        try:
            held = bytes(memoryview(value))
        except TypeError:
            raise self.place.type_error(
                f"is a {self.type.name} of {self.type.size} bytes and takes a ctypes.Structure with its fields, or "
                f"bytes, not {named(value)}"
            ) from None
        if len(held) != self.type.size:
            raise self.place.value_error(
                f"is a {self.type.name} of {self.type.size} bytes, and was given {len(held)} bytes. C++ pads fields to "
                "their alignment; a ctypes.Structure with the same fields does the same"
            )
        return held


def pack(packed: struct.Struct, parameters: Sequence[Parameter], values: Sequence[Any]) -> bytes:
    try:
        return packed.pack(*values)
    except (struct.error, OverflowError):
        explain(parameters, values)
        raise


def explain(parameters: Sequence[Parameter], values: Sequence[Any]) -> None:
    """Raises for the value that struct did not take."""
    for each, value in zip(parameters, values, strict=True):
        if isinstance(each, (Integer, Float)):
            each.check(value)


def integer(place: Place, value: Any) -> int:
    """An int from an integer of any type. Raises for tensors, whose value is on the GPU, and for floats."""
    refuse_tensor(place, value)
    if isinstance(value, float):
        raise place.type_error(f"takes an int, not the float {value!r}: int({value!r}) rounds it towards zero")
    if not isinstance(value, torch.SymInt):
        with contextlib.suppress(TypeError):
            return operator.index(value)
    raise place.type_error(f"takes an int, not {named(value)}")


def real(place: Place, value: Any) -> float:
    refuse_tensor(place, value)
    if not isinstance(value, (str, bytes, bytearray, torch.SymFloat, torch.SymInt)):
        try:
            return float(value)
        except OverflowError:
            raise place.value_error(_too_large("an int of that size")) from None
        except TypeError:
            pass
    raise place.type_error(f"takes a float or an int, not {named(value)}")


def _too_large(value: object) -> str:
    return f"cannot hold {value}: it is too large. Let the kernel take a wider type, or pass math.inf"


def not_on_gpu(place: Place, tensor: torch.Tensor) -> OpsmithError:
    return place.value_error(
        f"was given a tensor on {tensor.device}, and a CUDA kernel works on a GPU's memory: "
        f"{place.variable} = {place.variable}.cuda(), or run on the CPU inside `with opsmith.emulate():`"
    )


def refuse_tensor(place: Place, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        name = place.variable
        raise place.type_error(
            f"takes a number, not a tensor: pass {name}.item(), which waits for the GPU, or let the kernel take a "
            "pointer and read the number there"
        )


def number_type(number: Number) -> DeviceType:
    return DeviceType(next(name for name, each in NUMBERS.items() if each == number), number.size)


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def article(dtypes: Sequence[torch.dtype]) -> str:
    return "an" if short(dtypes[0]).startswith("i") else "a"


def named(value: Any) -> str:
    """A value in a message: its type, and itself where it is short."""
    if isinstance(value, torch.Tensor):
        return f"{article([value.dtype])} {short(value.dtype)} tensor"
    shown = repr(value)
    return f"{type(value).__name__} {shown}" if len(shown) <= 40 else f"a {type(value).__name__}"
