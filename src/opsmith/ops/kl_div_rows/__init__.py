from .op import kl_div_rows as kl_div_rows
