"""A sound op: the reproductions of faults must pass on it."""

from ._doubled import declared

op = declared(__name__)
