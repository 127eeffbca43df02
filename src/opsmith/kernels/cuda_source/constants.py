"""The values of __constant__ variables: checked against their types, and kept for modules loaded later."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import ConstantError, OpsmithError
from ...launch.driver import Driver
from .origin import Snapshot
from .parameters import Place, Struct, article, number_type, pack, parameter, short
from .types import NUMBERS, DeviceType, Variable, element_dtypes, unqualified, vector


@dataclass(frozen=True)
class Held:
    """A constant's value: host bytes, or a tensor of one device with a way to wait until it is written."""

    size: int
    data: bytes = b""
    tensor: torch.Tensor | None = None
    waits: Callable[[], object] | None = None

    @property
    def source(self) -> bytes | int:
        return self.data if self.tensor is None else self.tensor.data_ptr()

    def wait(self) -> None:
        if self.waits is not None:
            self.waits()


class Constants:
    """The values by name: from the host for all devices, from a GPU's tensor for that device."""

    def __init__(self) -> None:
        self._everywhere: dict[str, Held] = {}
        self._there: dict[tuple[str, int], Held] = {}

    def set(self, name: str, value: Held, index: int | None) -> None:
        if index is None:
            self._there = {key: held for key, held in self._there.items() if key[0] != name}
            self._everywhere[name] = value
        else:
            self._there[name, index] = value

    def on(self, index: int) -> dict[str, Held]:
        return {**self._everywhere, **{name: held for (name, at), held in self._there.items() if at == index}}


def not_declared(snapshot: Snapshot, name: str, constants: Iterable[str]) -> ConstantError:
    return snapshot.constant_error(name, f"is not in the source; its constants are: {', '.join(constants) or 'none'}")


def held(snapshot: Snapshot, name: str, variable: Variable, value: Any, driver: Driver | None) -> Held:
    """A value for a constant. Raises ConstantError if it has not the constant's type and size. Without a driver the
    value is kept on the host."""
    element = unqualified(variable.element)
    if element != variable.element:
        raise snapshot.constant_error(name, f"is declared const ({variable.element}) and cannot be set: remove const")
    if isinstance(value, torch.Tensor):
        return _from_tensor(snapshot, name, element, variable, value, driver)
    return Held(variable.size, _from_host(snapshot, name, element, variable, value))


def _from_tensor(
    snapshot: Snapshot, name: str, element: str, variable: Variable, value: torch.Tensor, driver: Driver | None
) -> Held:
    dtypes = element_dtypes(element) or (torch.uint8,)
    if value.dtype not in dtypes:
        raise snapshot.constant_error(
            name,
            f"holds {element} and takes {article(dtypes)} {' or '.join(map(short, dtypes))} tensor, "
            f"not {short(value.dtype)}: convert it with .to({dtypes[0]})",
        )
    if value.numel() * value.element_size() != variable.size:
        raise snapshot.constant_error(
            name,
            f"has {variable.size} bytes and takes a tensor of {variable.size // value.element_size()} elements of "
            f"{short(value.dtype)}, not of {value.numel()}",
        )
    kept = value.detach().clone(memory_format=torch.contiguous_format)
    if value.get_device() >= 0 and driver is not None:
        return Held(variable.size, tensor=kept, waits=driver.torch.written(value.get_device()))
    return Held(variable.size, bytes(kept.reshape(-1).view(torch.uint8).tolist()))


def _from_host(snapshot: Snapshot, name: str, element: str, variable: Variable, value: Any) -> bytes:
    place = _ConstantPlace(snapshot.origin.label, lambda: snapshot.declared("__constant__", name), 0, name, element)
    made = vector(element)
    number = NUMBERS.get(element) or (made and made[0])
    if number is None or isinstance(value, (bytes, bytearray, ctypes.Array, ctypes.Structure)):
        held: bytes = Struct(place, DeviceType(element, variable.size), f"{variable.size}s").convert(value, (), 0)
        return held
    count, values = variable.size // number.size, _flat(value)
    if len(values) != count:
        raise place.type_error(f"takes {count} numbers ({element}), not {len(values)}")
    one = parameter(place, number_type(number))
    return pack(struct.Struct(f"<{one.format * count}"), [one] * count, [one.convert(v, (), 0) for v in values])


class _ConstantPlace(Place):
    """A constant treated as a parameter, whose errors are ConstantErrors."""

    def type_error(self, what: str) -> OpsmithError:
        return ConstantError(self.kernel, self.name, what, self.declared())

    value_error = type_error


def _flat(value: Any) -> list[Any]:
    """The numbers in a number, a sequence, or a sequence of sequences."""
    if hasattr(value, "tolist"):  # NumPy's
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [number for part in value for number in _flat(part)]
    return [value]
