from .op import gelu as gelu
