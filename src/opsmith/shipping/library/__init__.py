"""A package's operators as one shared library, which torch loads without Python (`opsmith build --library`)."""

from .building import Library, build_library_of

__all__ = ["Library", "build_library_of"]
