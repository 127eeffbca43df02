"""What "correct" means: the checklist behind `opsmith check`, one file an item in items/.

subject.py    the op under check, as items see it          cases.py     arguments, and the Python that makes them
patterns.py   what the samples have in common               strategies.py calls made up after that, by Hypothesis
forms.py      second gradients and tangents as functions    matching.py  one call, for tests and reproductions
batches.py    a call by vmap, and one by one                transforms.py  what torch.func makes of a call
casting.py    a call in an autocast region                  faking.py    a call on fake tensors
compiled.py   a call through torch.compile                  exported.py  a call as a program of torch.export
allocation.py what a call holds of memory                   concurrency.py  calls from threads and forked processes
holding.py    a module that holds an op                     layouts.py   the same values laid out otherwise
memory.py     what lies under and around tensors            importing.py  how another process comes by an op
run.py        runs the items                                report.py, junit.py  what was found
Which numbers are right is accuracy's to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from ..operator.adopted import adopt
    from . import layouts, memory
    from .accuracy.compare import Comparison, compare, compare_samples
    from .accuracy.evaluate import outputs
    from .batches import assert_vmap_matches
    from .casting import assert_autocast_matches
    from .compiled import assert_compiled_matches
    from .exported import assert_exported_matches
    from .junit import to_junit
    from .matching import assert_matches, assert_second_gradients_match, assert_tangents_match
    from .report import Item, Report, to_json
    from .run import check
    from .transforms import assert_transform_matches

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
        "Comparison": ".accuracy.compare",
        "Item": ".report",
        "Report": ".report",
        "adopt": "..operator.adopted",
        "assert_autocast_matches": ".casting",
        "assert_compiled_matches": ".compiled",
        "assert_exported_matches": ".exported",
        "assert_matches": ".matching",
        "assert_second_gradients_match": ".matching",
        "assert_tangents_match": ".matching",
        "assert_transform_matches": ".transforms",
        "assert_vmap_matches": ".batches",
        "check": ".run",
        "compare": ".accuracy.compare",
        "compare_samples": ".accuracy.compare",
        "outputs": ".accuracy.evaluate",
        "to_json": ".report",
        "to_junit": ".junit",
    },
)
