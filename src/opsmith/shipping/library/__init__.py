"""A package's operators as one shared library, which torch loads without Python (`opsmith build --library`)."""

from .building import Library, build_library_of
from .contents import Contents, collect

__all__ = ["Contents", "Library", "build_library_of", "collect"]
