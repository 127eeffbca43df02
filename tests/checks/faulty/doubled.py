"""Nothing is wrong with it: what the lines that show a fault must leave alone."""

from ._doubled import declared

op = declared(__name__)
