"""ConvRNN: a recurrent layer whose step is a short convolution over the hidden units."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..ops.convrnn import convrnn


class ConvRNN(nn.Module):
    """h_t = act(conv1d(h_{t-1}, kernel) + x_t), for x [B, T, H] and all h_t [B, T, H], with a learned kernel [1, 1, K].

    `hidden` [B, H] is h_0, by default zero; pass the last step of a result, output[:, -1], to continue the sequence. H
    is not a parameter, because the layer works for any."""

    def __init__(
        self,
        kernel_size: int = 3,
        activation: str = "tanh",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"ConvRNN: kernel_size is {kernel_size}; it takes an odd number, for same padding")
        if activation not in ("tanh", "relu", "none"):
            raise ValueError(f"ConvRNN: activation is {activation!r}; it takes 'tanh', 'relu' or 'none'")
        self.kernel_size = kernel_size
        self.activation = activation
        self.kernel = nn.Parameter(torch.empty(1, 1, kernel_size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Within 1 / kernel_size, so that the sum over the taps is below 1 and the state decays without input."""
        nn.init.uniform_(self.kernel, -1 / self.kernel_size, 1 / self.kernel_size)

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        if hidden is None:
            hidden = x.new_zeros(x.shape[0], x.shape[2])
        output: Tensor = convrnn(x, self.kernel, hidden, self.activation)
        return output

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, activation={self.activation!r}"
