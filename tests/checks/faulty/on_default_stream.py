"""A kernel on the default stream instead of the current one."""

from __future__ import annotations

import torch
from torch import Tensor

from ._doubled import declared, launch_into


def kernel(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    with torch.cuda.stream(torch.cuda.default_stream()):
        launch_into(x, y)
    return y


op = declared(__name__, kernel)
