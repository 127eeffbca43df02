from .op import layer_norm as layer_norm
