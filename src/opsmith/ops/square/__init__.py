from .op import square as square
