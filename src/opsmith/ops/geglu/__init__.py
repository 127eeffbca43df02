from .op import geglu as geglu
