from .op import add_rms_norm as add_rms_norm
