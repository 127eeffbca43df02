"""How check, bench and demo judge the accuracy of an op.

evaluate.py  results and gradients of one call        truth.py     what the reference gives, and how accurately
rounding.py  where an op rounds                       budget.py    how far from the truth a number may be
variants.py  the reference in float64 despite its casts to float32, with other inputs, with other roundings
"""
