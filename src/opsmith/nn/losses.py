"""CrossEntropyLoss: torch's module over the op, with a z-loss besides."""

from __future__ import annotations

from torch import Tensor, nn

from ..ops.cross_entropy import cross_entropy


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """loss = mean(logsumexp(x) - x[target]), for x [batch, classes, ...] or [classes], target [batch, ...] or [].

    torch.nn.CrossEntropyLoss for targets that are numbers of classes; z_loss * logsumexp(x)^2 is added to each loss.
    `reduction` is "mean" over the targets that are not ignore_index, "sum", or "none"."""

    def __init__(
        self,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> None:
        super().__init__(ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"CrossEntropyLoss: reduction is {reduction!r}; it takes 'mean', 'sum' or 'none'")
        self.z_loss = z_loss

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if target.is_floating_point():
            raise TypeError(
                "CrossEntropyLoss: the target has a probability for each class; it takes the numbers of classes, and "
                "torch.nn.CrossEntropyLoss takes both"
            )
        rows = input.movedim(1, -1) if input.dim() > 1 else input
        loss: Tensor = cross_entropy(rows, target, self.label_smoothing, self.z_loss, self.ignore_index)
        if self.reduction == "none":
            return loss
        total = loss.sum()
        return total if self.reduction == "sum" else total / (target != self.ignore_index).sum()
