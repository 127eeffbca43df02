from .op import swiglu as swiglu
