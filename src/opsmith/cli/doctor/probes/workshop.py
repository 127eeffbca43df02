"""Where probes compile: an empty cache that is gone afterwards. What comes out of the cache proves nothing."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def workshop() -> Iterator[Path]:
    """A directory for sources; inside the context, opsmith's cache is empty. For a probe's own process alone."""
    with tempfile.TemporaryDirectory(prefix="opsmith-doctor-") as directory:
        os.environ["OPSMITH_CACHE_DIR"] = os.path.join(directory, "cache")
        yield Path(directory)
