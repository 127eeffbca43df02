"""From the dispatcher's error about a call to one that names the argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError, OpsmithError
from ..reference.signature import Kind, Signature, fits
from ..runtime import execution

_OF_THE_DISPATCHER = ("Declaration: ", "Schema: ")
"""Parts of the dispatcher's messages about arguments that do not bind."""


def explain(
    name: str, signature: Signature, error: Exception, args: Sequence[Any], kwargs: dict[str, Any]
) -> OpsmithError | None:
    """Why the op cannot take these arguments, or None if something else went wrong."""
    if isinstance(error, OpsmithError):
        return None
    binding = any(word in str(error) for word in _OF_THE_DISPATCHER)
    if isinstance(error, RuntimeError) and not binding:
        return _device_mix(name, signature, args, kwargs)
    return _wrong_argument(name, signature, args, kwargs) or _device_mix(name, signature, args, kwargs)


def _wrong_argument(
    name: str, signature: Signature, args: Sequence[Any], kwargs: dict[str, Any]
) -> OpsmithError | None:
    arguments, schema = signature.arguments, signature.schema(name)
    positional = [argument for argument in arguments if not argument.keyword_only]
    if len(args) > len(positional):
        return ArgumentError(name, schema, f"it takes {len(positional)} positional arguments, not {len(args)}")
    given = dict(zip((argument.name for argument in positional), args, strict=False))
    for key, value in kwargs.items():
        if key in given:
            return ArgumentError(name, schema, f"argument {key!r} is given twice")
        if key != "out" and key not in {argument.name for argument in arguments}:
            return ArgumentError(name, schema, f"it has no argument {key!r}")
        given[key] = value
    for argument in arguments:
        if argument.name not in given:
            if argument.has_default:
                continue
            return ArgumentError(name, schema, f"argument {argument.name!r} is missing")
        value = given[argument.name]
        if not fits(argument.type, value):
            hint = ""
            if argument.kind is Kind.TENSOR and isinstance(value, (int, float, bool)):
                hint = f"; pass torch.tensor({value!r}), or annotate it as a number in the reference"
            message = f"argument {argument.name!r} takes {argument.type}, not {given_as(value)}{hint}"
            return ArgumentError(name, schema, message)
    return None


def _device_mix(name: str, signature: Signature, args: Sequence[Any], kwargs: dict[str, Any]) -> OpsmithError | None:
    try:
        execution.check_one_device(name, signature, signature.bind_call(args, kwargs))
    except OpsmithError as mixed:
        return mixed
    except (TypeError, AttributeError):
        return None
    return None


def given_as(value: Any) -> str:
    """A value for an error message: its type, and the value of a number or a string."""
    return f"{type(value).__name__} ({value!r})" if isinstance(value, (int, float, str)) else type(value).__name__
