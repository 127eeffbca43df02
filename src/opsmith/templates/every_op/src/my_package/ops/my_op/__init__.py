from .op import MyOp as MyOp
from .op import my_op as my_op
from .op import my_op_ as my_op_
