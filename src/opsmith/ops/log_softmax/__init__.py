from .op import log_softmax as log_softmax
