"""A warp barrier that all lanes reach, with a mask of one lane."""

from ._doubled import declared, launch

op = declared(__name__, lambda x: launch(x, "divergent"))
