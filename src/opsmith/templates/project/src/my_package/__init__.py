"""PyTorch operators with kernels of their own. Importing it declares torch.ops.my_package.*"""

from . import ops as ops
