"""A barrier of a warp whose mask names one lane, and all come to it."""

from ._doubled import declared, launch

op = declared(__name__, lambda x: launch(x, "divergent"))
