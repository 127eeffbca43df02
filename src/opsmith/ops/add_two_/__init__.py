from .op import add_two_ as add_two_
