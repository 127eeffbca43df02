from .op import focal_loss as focal_loss
