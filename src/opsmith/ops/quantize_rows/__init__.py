from .op import quantize_rows as quantize_rows
