"""What "correct" means: the checklist behind `opsmith check`.

run.py           runs the items                        items/     the checklist, one file per item
report.py        the results; junit.py as XML          cases/     generated calls
subject.py       the op under check, as items see it   calls/     one call under vmap, autocast, torch.compile, ...
isolation.py     an item in a forked process           accuracy/  how much error is allowed
process.py       Python code in a new process          layouts.py other memory layouts of the same values
reproduction.py  code that imports the op elsewhere    memory.py  memory around tensors, and bitwise comparison
                                                       values.py  the arguments of a call, and their tensors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from ..operator.adopted import adopt
    from . import layouts, memory
    from .accuracy.evaluate import outputs
    from .accuracy.truth import Comparison
    from .calls.autocast import assert_autocast_matches
    from .calls.compile import assert_compiled_matches
    from .calls.export import assert_exported_matches
    from .calls.functional_transforms import assert_transform_matches
    from .calls.matching import (
        assert_matches,
        assert_second_gradients_match,
        assert_tangents_match,
        compare,
        compare_samples,
    )
    from .calls.vmap import assert_vmap_matches
    from .junit import to_junit
    from .report import Item, Report, to_json
    from .run import check

__all__ = [
    "Comparison",
    "Item",
    "Report",
    "adopt",
    "assert_autocast_matches",
    "assert_compiled_matches",
    "assert_exported_matches",
    "assert_matches",
    "assert_second_gradients_match",
    "assert_tangents_match",
    "assert_transform_matches",
    "assert_vmap_matches",
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
        "assert_autocast_matches": ".calls.autocast",
        "assert_compiled_matches": ".calls.compile",
        "assert_exported_matches": ".calls.export",
        "assert_matches": ".calls.matching",
        "assert_second_gradients_match": ".calls.matching",
        "assert_tangents_match": ".calls.matching",
        "assert_transform_matches": ".calls.functional_transforms",
        "assert_vmap_matches": ".calls.vmap",
        "check": ".run",
        "compare": ".calls.matching",
        "compare_samples": ".calls.matching",
        "outputs": ".accuracy.evaluate",
        "to_json": ".report",
        "to_junit": ".junit",
    },
)
