"""How near to the truth an op is: what checks, bench and demo judge numbers by.

evaluate.py  results and gradients of one call        truth.py     what the reference gives, and how surely
rounding.py  where an op rounds                       budget.py    how far from the truth a number may lie
compare.py   an op beside its reference               shaking.py   how much a computation moves by its roundings
"""
