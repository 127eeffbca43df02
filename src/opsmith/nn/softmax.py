"""Softmax and its logarithm along any dimension: torch's modules over the ops of rows."""

from __future__ import annotations

from torch import Tensor, nn

from ..ops.log_softmax import log_softmax
from ..ops.softmax import softmax


class Softmax(nn.Softmax):
    """y = exp(x) / sum(exp(x)) along `dim`, for x [...] and y [...]: torch.nn.Softmax."""

    def forward(self, input: Tensor) -> Tensor:
        dim = _dimension(self.dim, input)
        y: Tensor = softmax(input.movedim(dim, -1))
        return y.movedim(-1, dim)


class LogSoftmax(nn.LogSoftmax):
    """y = x - log(sum(exp(x))) along `dim`, for x [...] and y [...]: torch.nn.LogSoftmax."""

    def forward(self, input: Tensor) -> Tensor:
        dim = _dimension(self.dim, input)
        y: Tensor = log_softmax(input.movedim(dim, -1))
        return y.movedim(-1, dim)


def _dimension(dim: int | None, x: Tensor) -> int:
    """Without dim, the one that torch takes."""
    if dim is not None:
        return dim
    return 0 if x.dim() in (0, 1, 3) else 1
