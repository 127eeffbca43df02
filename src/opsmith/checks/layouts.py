"""The same values in other memory layouts."""

from __future__ import annotations

from collections.abc import Callable

import torch

Layout = Callable[[torch.Tensor], torch.Tensor]


def permuted(tensor: torch.Tensor) -> torch.Tensor:
    """Dense, its first and last dimension swapped in memory."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.ndim > 1 else tensor.clone()


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of each row of a tensor twice as wide."""
    if tensor.ndim == 0:
        return offset(tensor)
    wide = tensor.new_zeros(*tensor.shape[:-1], 2 * tensor.shape[-1])
    return wide[..., ::2].copy_(tensor)


def offset(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous, one element after the start of the allocation, so that no vector load is aligned."""
    memory = tensor.new_empty(tensor.numel() + 1)
    return memory[1:].view(tensor.shape).copy_(tensor)


def row_padded(tensor: torch.Tensor) -> torch.Tensor:
    """Rows with a gap of one element between them."""
    if tensor.ndim < 2:
        return offset(tensor)
    wide = tensor.new_zeros(*tensor.shape[:-1], tensor.shape[-1] + 1)
    return wide[..., :-1].copy_(tensor)


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """NHWC or NDHWC in memory; only for four and five dimensions."""
    return tensor.contiguous(memory_format=torch.channels_last if tensor.ndim == 4 else torch.channels_last_3d)


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    """Its first row repeated with stride zero. Values change."""
    return tensor[:1].expand_as(tensor) if tensor.ndim else tensor.expand(())


def repeated(tensor: torch.Tensor) -> torch.Tensor:
    """Its first element repeated with strides of zero, like the gradient of `.sum().backward()`. Values change."""
    return tensor.reshape(-1)[:1].reshape(()).expand_as(tensor) if tensor.numel() else tensor


def transposed_view(tensor: torch.Tensor) -> torch.Tensor:
    """The last two dimensions swapped in memory."""
    return tensor.transpose(-2, -1).contiguous().transpose(-2, -1) if tensor.ndim > 1 else sliced(tensor)


LAYOUTS: dict[str, Layout] = {
    each.__name__: each
    for each in (permuted, sliced, offset, row_padded, expanded, repeated, transposed_view, channels_last)
}
CHANGING = ("expanded", "repeated")
"""The layouts that change values."""


def layouts_for(tensor: torch.Tensor) -> list[str]:
    """The names of the layouts that differ from contiguous for this tensor."""
    found = ["sliced", "offset", "repeated"] if tensor.ndim else ["offset"]
    if tensor.ndim > 1:
        found += ["expanded", "permuted", "row_padded"]
    if tensor.ndim > 2:  # in two dimensions the same as permuted
        found.append("transposed_view")
    return [*found, "channels_last"] if tensor.ndim in (4, 5) else found


def code(layout: str) -> str:
    """The expression that applies the layout to `{}`, for reproductions."""
    return f"opsmith.checks.layouts.{layout}({{}})"
