"""A backward kernel on the default stream instead of the current one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._doubled import declared, launch_into

op = declared(__name__)


@op.register_backward("cuda")
def _(grads: tuple[Tensor], *, needs: Any) -> Tensor:
    if grads[0].dtype is not torch.float32 or not grads[0].numel():
        return 2 * grads[0]
    grad = torch.empty_like(grads[0])
    with torch.cuda.stream(torch.cuda.default_stream()):
        launch_into(grads[0], grad)
    return grad
