from .op import elementwise_mult as elementwise_mult
