"""One call made in a particular way (under vmap, autocast, torch.compile, ...) and compared with the reference.

Tests and printed reproductions import the functions named `assert_..._matches` from `opsmith.checks`.
"""

from __future__ import annotations

from ..._lazy import lazy

__getattr__, __dir__ = lazy(__name__, {})
