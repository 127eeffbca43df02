from .op import rms_norm as rms_norm
