from .op import group_norm as group_norm
