"""PyTorch operators with their own kernels. Importing it declares torch.ops.my_package.*"""

from . import ops as ops
