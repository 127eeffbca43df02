"""What opsmith asks of tensors: who shares memory with whom, a shape without memory, a tensor in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .schema import Signature


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


def overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors share an element. Two strided views that interleave count as apart."""
    if first.numel() == 0 or second.numel() == 0 or storage_of(first) != storage_of(second):
        return False
    if first.data_ptr() == second.data_ptr():
        return True
    if not (first.is_contiguous() and second.is_contiguous()):
        return False
    return first.data_ptr() < second.data_ptr() + second.nbytes and second.data_ptr() < first.data_ptr() + first.nbytes


def is_placeholder(tensor: torch.Tensor | None) -> bool:
    """Whether a tensor has a shape and no memory: what stands for an input that a backward kernel did not ask for."""
    if tensor is None or type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor.numel() == 0:
        return False
    return bool(tensor.untyped_storage().nbytes() == 0)


def placeholder(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape, dtype and device that holds no memory. Nothing may compute with it: it is handed to
    the backward operator alone, whose reference refuses it by is_placeholder."""
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


def storage_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def version_of(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def told(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {value.dtype} Tensor of shape {tuple(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return f"a {type(value).__name__}"
