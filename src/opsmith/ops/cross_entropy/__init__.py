from .op import cross_entropy as cross_entropy
