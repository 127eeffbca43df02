"""A directory that is written as a whole: until everything is there, what was there before stays."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """A new directory, which takes the place of that one at the end; nothing is left of it if the block fails."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        yield staging
        staging.chmod(0o755)
        if directory.exists():
            os.rename(directory, former := Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent)))
            os.rename(staging, directory)
            shutil.rmtree(former)
        else:
            os.rename(staging, directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
