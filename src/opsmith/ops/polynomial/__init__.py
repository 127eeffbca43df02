from .op import polynomial as polynomial
