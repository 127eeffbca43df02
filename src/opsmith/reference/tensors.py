"""Questions about tensors: shared memory, shapes without memory, dtype classes, descriptions for messages."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from .signature import Signature

ALIGNMENT = 64  # bytes, of what torch allocates at least


def settle(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Results as an `op` returns them: contiguous, and sharing memory neither with an input nor with each other."""
    taken = {storage_of(tensor) for tensor in inputs}
    settled: list[torch.Tensor] = []
    for result in results:
        result = result.resolve_conj().resolve_neg().contiguous()
        if storage_of(result) in taken:
            result = result.clone(memory_format=torch.contiguous_format)
        taken.add(storage_of(result))
        settled.append(result)
    return settled


def contiguous_clone(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the byte after its last."""
    begin = tensor.data_ptr()
    return begin, begin + (_reach(tensor) * tensor.element_size() if tensor.numel() else 0)


def _reach(tensor: torch.Tensor) -> int:
    """The elements of memory from a tensor's first to its last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def copied_as_laid_out(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, in memory with the same alignment: a kernel treats both alike."""
    tensor = tensor.detach()
    if tensor.numel() == 0 or tensor.layout is not torch.strided:
        return tensor.clone()
    reach = _reach(tensor)
    offset = tensor.data_ptr() % ALIGNMENT // tensor.element_size()
    memory = torch.empty(offset + reach, dtype=tensor.dtype, device=tensor.device)
    memory[offset:].copy_(tensor.as_strided((reach,), (1,)))
    return memory.as_strided(tensor.shape, tensor.stride(), offset)


def overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors share an element. Two strided views that interleave count as apart."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    if wrapped(first) or wrapped(second):  # the wrapper does not show whose memory it is
        return first is second
    if first.numel() == 0 or second.numel() == 0 or storage_of(first) != storage_of(second):
        return False
    if first.data_ptr() == second.data_ptr():
        return True
    if not (first.is_contiguous() and second.is_contiguous()):
        return False
    return first.data_ptr() < second.data_ptr() + second.nbytes and second.data_ptr() < first.data_ptr() + first.nbytes


def is_placeholder(tensor: torch.Tensor | None) -> bool:
    """Whether a tensor has a shape but no memory: the stand-in for an input that the backward kernel does not need."""
    if tensor is None or type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return False
    functorch = torch._C._functorch
    wrapped = functorch.is_functorch_wrapped_tensor(tensor) or functorch.is_legacy_batchedtensor(tensor)
    if wrapped or tensor.numel() == 0:
        return False
    return bool(tensor.untyped_storage().nbytes() == 0)


def placeholder(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape, dtype and device that holds no memory. Nothing may compute with it: it is only passed
    to the backward operator, whose reference refuses it (is_placeholder)."""
    empty = torch.empty_strided(tensor.shape, (0,) * tensor.ndim, dtype=tensor.dtype, device=tensor.device)
    empty.untyped_storage().resize_(0)
    return empty


def on_meta(signature: Signature, args: Sequence[Any]) -> list[Any]:
    """The arguments with tensors that have shapes and strides, and no memory."""
    metas = [
        None
        if tensor is None
        else torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        for tensor in signature.flatten(args)
    ]
    return signature.unflatten(args, metas)


FULL, HALF, MIXED = "full", "half", "mixed"
DTYPE_CLASSES = (FULL, HALF, MIXED)


def dtype_class(tensors: Sequence[torch.Tensor | None]) -> str:
    """What the tensors of a call have in common: all float32 or all float64, all of one half type, or neither."""
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    if len(dtypes) != 1:
        return MIXED
    dtype = dtypes.pop()
    if dtype in (torch.float32, torch.float64):
        return FULL
    return HALF if dtype in (torch.float16, torch.bfloat16) else MIXED


def storage_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def version_of(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def described_value(value: Any) -> str:
    """A value for an error message: its type, and a tensor's dtype and shape."""
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} Tensor of shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return f"a {type(value).__name__}"


@functools.cache
def scalar_type(dtype: torch.dtype) -> int:
    """The number of a dtype in C++ (c10::ScalarType)."""
    number: Any = (
        torch._C.parse_schema(f"opsmith::probe(ScalarType dtype={str(dtype)[6:]}) -> ()").arguments[0].default_value
    )
    return int(number)
