"""The samples of an op for a GPU, without one: meta tensors, so their sizes take neither memory nor time.

Planning a launch needs no more. Functions that launch kernels run on CPU tensors in their place, with any values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from ..operator.samples import Sample

_META = torch.device("meta")


def gpu_samples(function: Callable[..., Iterable[Sample]], dtype: torch.dtype) -> list[Sample]:
    """What the author's function yields for a GPU. Raises what it raises: also where it reads values."""
    with _OnMeta(), mock.patch.object(torch, "Generator", _Generator):
        return list(function(torch.device("cuda"), dtype))


def on_cpu(tensors: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """CPU tensors in place of meta tensors, uninitialized. Views of one memory stay views of one memory."""
    memory: dict[int, torch.UntypedStorage] = {}

    def made(tensor: torch.Tensor | None) -> torch.Tensor | None:
        if tensor is None or tensor.device != _META:
            return tensor
        of = tensor.untyped_storage()
        if of._cdata not in memory:
            memory[of._cdata] = torch.empty(of.nbytes(), dtype=torch.uint8).untyped_storage()
        place = memory[of._cdata], tensor.storage_offset(), tensor.shape, tensor.stride()
        return torch.empty(0, dtype=tensor.dtype).set_(*place).requires_grad_(tensor.requires_grad)

    return list(map(made, tensors))


def size_in_bytes(tensors: Iterable[torch.Tensor | None]) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors if tensor is not None)


class _OnMeta(TorchFunctionMode):
    """Inside, tensors that would be on a GPU are on the device "meta"."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.device:  # which the author's function may ask for its type
            return func(*args, **(kwargs or {}))
        if func is torch.Tensor.cuda:
            return args[0].to(_META)
        given = {name: _device(value) for name, value in (kwargs or {}).items()}
        return func(*map(_device, args), **given)


def _device(value: Any) -> Any:
    on_gpu = isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "cuda"
    return _META if on_gpu else value


class _Generator(torch.Generator):
    """A CPU's, which every device can be asked for."""

    def __new__(cls, device: object = "cpu") -> _Generator:
        return super().__new__(cls)
