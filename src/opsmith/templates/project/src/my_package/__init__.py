"""my_package: PyTorch operators with kernels of their own. Importing it declares every op as torch.ops.my_package.*."""

from . import ops as ops
