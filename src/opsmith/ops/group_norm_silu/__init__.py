from .op import group_norm_silu as group_norm_silu
