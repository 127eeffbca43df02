"""Trains a small residual network for a few steps. Each of its blocks ends in a MyOp module."""

import torch
from torch import Tensor, nn

from my_package.ops.my_op import MyOp

FEATURES = 32


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(2))
        self.joins = nn.ModuleList(MyOp(FEATURES) for _ in range(2))
        self.head = nn.Linear(FEATURES, 1)

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        for layer, join in zip(self.layers, self.joins, strict=True):
            x, residual = join(layer(x), residual)
        result: Tensor = self.head(x)
        return result


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = Network().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    x = torch.randn(256, FEATURES, device=device)
    target = torch.sin(x.sum(-1, keepdim=True))
    for step in range(41):
        loss = nn.functional.mse_loss(network(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step:2}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
