from .op import mish as mish
