"""The ops of a job: by name, by the file or module that declares them, or an operator of torch.ops."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import NotAnOperatorError, SeveralOverloadsError
from ...operator.adopted import Adopted, adopt
from ...operator.op import Op
from .._ops import load, selected
from .._screen import RefusedError
from .worker import Job

PREFIX = "torch.ops."


def chosen(job: Job) -> list[Op | Adopted]:
    """The ops of a job, in the given order, each once. Raises RefusedError."""
    operators = [name for name in job.names if name.startswith(PREFIX)]
    if operators or job.reference or job.samples:
        return [_adopted(job, operators)]
    return list(selected(job.names, job.sources, "check"))


def _adopted(job: Job, operators: list[str]) -> Adopted:
    if len(operators) != 1 or len(job.names) != 1:
        given = ", ".join(job.names) or "no operator"
        raise RefusedError(
            f"--reference and --samples go with one operator of torch.ops, and {given} was given. Use:\n"
            "  opsmith check torch.ops.NAMESPACE.NAME --reference FILE.py:FUNCTION"
        )
    if job.reference is None:
        raise RefusedError(
            f"{operators[0]} is checked against a PyTorch function that computes the same: add --reference "
            "FILE.py:FUNCTION"
        )
    libraries = [load(source).__name__ for source in job.sources]
    reference, reference_home = _function(job.reference, "--reference")
    samples, samples_home = _function(job.samples, "--samples") if job.samples else (None, None)
    try:
        adopted = adopt(_operator(operators[0], job.reference), reference, samples)
    except (NotAnOperatorError, SeveralOverloadsError) as error:
        raise RefusedError(str(error)) from error
    # The files that were given, which load the operator's library, not those where the functions were written.
    adopted.reference_home, adopted.samples_home = reference_home, samples_home
    adopted.libraries = libraries
    return adopted


def _operator(name: str, reference: str) -> Any:
    found: Any = torch.ops
    for part in name.removeprefix(PREFIX).split("."):
        try:
            found = getattr(found, part)
        except (AttributeError, RuntimeError) as error:
            raise RefusedError(
                f"torch has no operator {name}. Its library must be loaded first: import it in "
                f"{reference.rpartition(':')[0]}, or give its module or file by --from."
            ) from error
    return found


def _function(given: str, option: str) -> tuple[Any, tuple[str, str]]:
    source, _, name = given.rpartition(":")
    if not source:
        raise RefusedError(f"{option} {given}: give a file or a module and the function in it, FILE.py:FUNCTION")
    module = load(source)
    function = getattr(module, name, None)
    if not callable(function):
        if function is None:
            raise RefusedError(f"{option} {given}: {source} has no function {name!r}.")
        raise RefusedError(f"{option} {given}: {name!r} in {source} is not a function but {type(function).__name__}.")
    return function, (module.__name__, name)
