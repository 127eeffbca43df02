"""How check, bench and demo judge the accuracy of an op.

evaluate.py  results and gradients of one call        truth.py     what the reference gives, and how accurately
rounding.py  where an op rounds                       budget.py    how far from the truth a number may be
doubling.py  casts to float32 computed in float64     shaking.py   random changes of inputs and roundings
"""
