from .op import swish as swish
