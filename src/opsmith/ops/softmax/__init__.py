from .op import softmax as softmax
