from .op import l2_normalize as l2_normalize
