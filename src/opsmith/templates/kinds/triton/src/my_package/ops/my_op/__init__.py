from importlib.util import find_spec

from .op import MyOp as MyOp
from .op import my_op as my_op
from .op import my_op_ as my_op_

if find_spec("triton"):  # without Triton the reference runs
    from . import kernel as kernel
