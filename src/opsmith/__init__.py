"""opsmith turns a kernel into a complete PyTorch operator."""

from .errors import OpsmithError, OpsmithWarning
from .op import Op, get, op
from .samples import Cost, Sample

__version__ = "0.1.0"
__all__ = ["Cost", "Op", "OpsmithError", "OpsmithWarning", "Sample", "get", "op"]
