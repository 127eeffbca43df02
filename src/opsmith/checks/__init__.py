"""What "correct" means: the checklist behind `opsmith check`.

run.py           runs the items                        items/     the checklist, one file per item
report.py        the results; junit.py as XML          cases/     generated calls
subject.py       the op under check, as items see it   accuracy/  how much error is allowed
matching.py      one call compared with its reference  layouts.py other memory layouts of the same values
isolation.py     an item in a forked process           memory.py  memory around tensors, and bitwise comparison
reproduction.py  the op in a new process               values.py  the arguments of a call, and their tensors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from ..operator.adopted import adopt
    from . import layouts, memory
    from .accuracy.evaluate import outputs
    from .accuracy.truth import Comparison
    from .junit import to_junit
    from .matching import assert_matches, compare, compare_samples
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
    "memory",
    "outputs",
    "to_json",
    "to_junit",
]

# The parent process of `opsmith check` reads and writes reports without importing torch.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "Comparison": ".accuracy.truth",
        "Item": ".report",
        "Report": ".report",
        "adopt": "..operator.adopted",
        "assert_matches": ".matching",
        "check": ".run",
        "compare": ".matching",
        "compare_samples": ".matching",
        "outputs": ".accuracy.evaluate",
        "to_json": ".report",
        "to_junit": ".junit",
    },
)
