"""An operator of torch.library that uses the current device instead of that of its tensors."""

from __future__ import annotations

import torch
from torch import Tensor

import opsmith

from ._doubled import samples

library = torch.library.Library("faulty", "FRAGMENT")
library.define("other_device(Tensor x) -> Tensor")


def reference(x: Tensor) -> Tensor:
    return 2 * x


def on_the_current_device(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device="cuda").copy_(2 * x)


library.impl("other_device", on_the_current_device, "CUDA")
op = opsmith.checks.adopt(torch.ops.faulty.other_device, reference, samples)
