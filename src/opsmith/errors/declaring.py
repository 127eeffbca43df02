"""Declaring an op: its name, its reference, what the reference does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import LocatedError, OpsmithError, SourceLine, definition, described, quoted


class InvalidNameError(LocatedError, ValueError):
    """The op's name is not of the form namespace::name."""

    def __init__(self, name: object) -> None:
        super().__init__(
            f"{name!r} is not an operator name. Write 'namespace::name', each part letters, digits and underscores, "
            "not beginning with a digit: 'mylib::mish'."
        )


class NameTakenError(LocatedError, ValueError):
    """The name belongs to another module's op, or to an operator opsmith did not declare."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(
            f"{name} is already declared by {owner}. Choose another name; only the module that declared an op can "
            "declare it again (as a notebook cell run twice does)."
        )


class SchemaDiffersError(OpsmithError, ValueError):
    """A loaded library of the package defines an operator with another schema than the package declares."""

    def __init__(self, name: str, declared: str, defined: str, package: str) -> None:
        super().__init__(
            f"{name} is declared as\n  {declared}\nand the library of {package} that this process has loaded defines "
            f"it as\n  {defined}\nThe two are of different versions. Build the library again:  opsmith build {package} "
            "--library"
        )


class NotGeneratedError(LocatedError, TypeError):
    """Generated source was asked of an op whose kernels are written by hand."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} has no generated source: it is declared with opsmith.op. Kernels are generated for ops declared "
            "with opsmith.pointwise or opsmith.rowwise."
        )


class SignatureError(OpsmithError, TypeError):
    """The reference's signature cannot become an operator schema."""

    def __init__(self, name: str, function: Callable[..., Any], what: str) -> None:
        line = quoted(definition(function))
        super().__init__(f"{name}: the reference {described(function)} cannot become an operator: {what}.{line}")


class ReferenceResultError(OpsmithError, TypeError):
    """The reference returned something other than what its annotation says."""

    def __init__(self, name: str, function: Callable[..., Any], expected: str, given: str) -> None:
        super().__init__(
            f"{name}: the reference {described(function)} is annotated to return {expected} but returned {given}."
            f"{quoted(definition(function))}"
        )


class NotPointwiseError(OpsmithError, TypeError):
    """A reference given to `pointwise` does something that a kernel of elements cannot do."""

    def __init__(self, name: str, function: Callable[..., Any], what: str, line: SourceLine | None) -> None:
        super().__init__(
            f"{name}: the reference {described(function)} is not pointwise: {what}.{quoted(line)}\n"
            "A pointwise reference computes each element from the elements at the same position, by torch's "
            "elementwise functions. Declare a function that reduces rows with @opsmith.rowwise, and any other with "
            "@opsmith.op, which takes any PyTorch function."
        )


class NotRowwiseError(OpsmithError, TypeError):
    """A reference given to `rowwise` does something that a kernel of rows cannot do."""

    def __init__(self, name: str, function: Callable[..., Any], what: str, line: SourceLine | None) -> None:
        super().__init__(
            f"{name}: the reference {described(function)} is not a function of rows: {what}.{quoted(line)}\n"
            "A row program computes each row from the rows at the same position, by torch's elementwise functions and "
            "reductions over the row. Declare any other function with @opsmith.op, which takes any PyTorch function."
        )


class OutMismatchError(LocatedError, ValueError):
    """A tensor given as out= does not have the shape or dtype of the result."""

    def __init__(self, name: str, result: str, given: str) -> None:
        super().__init__(
            f"{name}: the result is {result}, but out= is {given}. Give an out= of the result's shape and dtype."
        )


class UndeclaredMutationError(OpsmithError, RuntimeError):
    """The reference or a kernel changed an input that mutates_args does not name."""

    def __init__(self, name: str, argument: str, culprit: str, line: SourceLine | None = None) -> None:
        super().__init__(
            f"{name}: {culprit} changes its input {argument!r} in place, which the op does not declare: autograd and "
            f"torch.compile would give wrong results. Work on a copy ({argument} = {argument}.clone()), or declare "
            f'mutates_args=("{argument}",) and return None.{quoted(line)}'
        )


class RandomReferenceError(OpsmithError, RuntimeError):
    """A gradient by recomputing the reference was asked for, but the reference draws random numbers."""

    def __init__(self, name: str, function: str, line: SourceLine) -> None:
        super().__init__(
            f"{name}: the reference draws random numbers ({function} at {line.place}), so its gradient cannot be "
            "derived by running it again. Draw outside and pass the numbers in as a tensor, or write the gradient with "
            f"register_autograd or register_backward.{quoted(line)}"
        )
