"""Where probes compile: an empty cache that is gone afterwards. What comes out of the cache proves nothing."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "OPSMITH_CACHE_DIR"


@contextlib.contextmanager
def workshop() -> Iterator[Path]:
    """A directory for sources; inside the context, opsmith's cache is empty."""
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="opsmith-doctor-") as directory:
        os.environ[VARIABLE] = os.path.join(directory, "cache")
        try:
            yield Path(directory)
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before
