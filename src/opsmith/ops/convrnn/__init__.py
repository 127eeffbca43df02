from .op import convrnn as convrnn
