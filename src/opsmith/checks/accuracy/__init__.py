"""How accurate an op is: how check, bench and demo judge numbers.

evaluate.py  results and gradients of one call        truth.py     what the reference gives, and how surely
rounding.py  where an op rounds                       budget.py    how far from the truth a number may lie
compare.py   an op beside its reference               shaking.py   how much a computation moves by its roundings
"""
