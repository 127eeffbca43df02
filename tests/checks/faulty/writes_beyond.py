"""One element too many, where their number is odd."""

from ._doubled import declared, launch

op = declared(__name__, lambda x: launch(x, "beyond"))
