"""What "correct" means: the checklist behind `opsmith check`, one file an item in items/.

subject.py    the op under check, as items see it          cases.py     arguments, and the Python that makes them
evaluate.py   results and gradients of one call             budget.py    how far from the truth a number may lie
compare.py    an op beside its reference                    layouts.py   the same values laid out otherwise
adopted.py    operators registered elsewhere                report.py    what was found
run.py        runs the items
"""

from . import layouts
from .adopted import adopt
from .compare import Comparison, compare, compare_samples
from .matching import assert_matches
from .report import Item, Report, to_json
from .run import check

__all__ = [
    "Comparison",
    "Item",
    "Report",
    "adopt",
    "assert_matches",
    "check",
    "compare",
    "compare_samples",
    "layouts",
    "to_json",
]
