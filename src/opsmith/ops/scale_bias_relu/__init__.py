from .op import scale_bias_relu as scale_bias_relu
