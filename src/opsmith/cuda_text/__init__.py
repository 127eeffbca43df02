"""Reads CUDA C++ without a compiler: tokens, preprocessor lines, functions and their variables, launches, declarations.

The linter, `opsmith.cuda_source` and the emulator use it. Needs only the standard library.
"""

from __future__ import annotations

from .code import Call, Code, Range
from .declarations import KernelText, SourceText, declarations_in
from .functions import Function, functions_in
from .launches import Launch, launches_in
from .parameters import INTEGERS, Parameter
from .preprocessor import Macro, Preprocessed
from .tokens import Lines, is_number, is_string, without_comments
from .variables import Variable, Variables

__all__ = [
    "INTEGERS", "Call", "Code", "Function", "KernelText", "Launch", "Lines", "Macro", "Parameter", "Preprocessed",
    "Range", "SourceText", "Variable", "Variables", "declarations_in", "functions_in", "is_number", "is_string",
    "launches_in", "without_comments",
]  # fmt: skip
