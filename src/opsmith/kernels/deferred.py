"""A kernel's function in a module that is imported when the kernel is first used: importing it imports its language."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import LanguageMissingError, described

if TYPE_CHECKING:
    from .languages import Language


class Deferred:
    """`Deferred("mylib.triton_kernels", "forward", TRITON)`: that module's function, written in that language."""

    def __init__(self, module: str, name: str, language: Language) -> None:
        self.module = module
        self.language = language
        self.__name__ = name

    def require(self) -> None:
        """Raises, with the line that mends it, where the language is not installed."""
        if "function" not in self.__dict__ and not all(map(importlib.util.find_spec, self.language.modules)):
            raise LanguageMissingError(f"The kernel {self}", self.language.name, self.language.package)

    @cached_property
    def function(self) -> Callable[..., Any]:
        self.require()
        function: Callable[..., Any] = getattr(importlib.import_module(self.module), self.__name__)
        return function

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)

    def __str__(self) -> str:
        """'forward (triton_kernel.py:30)', also where the module cannot be imported."""
        if "function" in self.__dict__:
            return described(self.function)
        spec = importlib.util.find_spec(self.module)
        if spec is None or spec.origin is None:
            return self.__name__
        with open(spec.origin, encoding="utf-8") as source:
            for number, line in enumerate(source, start=1):
                if re.match(rf"def {self.__name__}\b", line):
                    return f"{self.__name__} ({os.path.basename(spec.origin)}:{number})"
        return self.__name__


def imported(function: Any) -> Any:
    """The function itself."""
    return function.function if isinstance(function, Deferred) else function
