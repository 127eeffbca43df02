"""A call inside an autocast region, compared with the reference on inputs cast as the op declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...operator.adopted import Adopted
from ...operator.op import Op
from ...reference.signature import flatten, unflatten
from ..accuracy.evaluate import Named, evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Comparison, Truth
from ..subject import Subject

if TYPE_CHECKING:
    from ...reference.signature import Argument

POLICIES = ("keep", "lower", "float32")


def assert_autocast_matches(op: Op | Adopted, *args: Any, device: str, dtype: torch.dtype, **kwargs: Any) -> None:
    """Raises AssertionError unless the op does inside torch.autocast(device, dtype) what its reference does outside
    of it, on inputs cast as the op's policy says; an operator that declares none may follow any of 'keep', 'lower' and
    'float32'. Gradients have the dtypes of the inputs."""
    subject = Subject(op, device)
    values = op.signature.bind_call(args, kwargs)
    gradients = any(tensor is not None and tensor.requires_grad for tensor in flatten(subject.arguments, values))
    tried = {policy: compared(subject, values, policy, dtype, gradients) for policy in policies_of(subject)}
    wrong = {policy: [each for each in found if not each] for policy, found in tried.items()}
    wrong_policies = [f"{policy}: {each[0].what}: {each[0].message}" for policy, each in wrong.items() if each]
    assert len(wrong_policies) < len(tried), f"{op.name} in an autocast region to {dtype}: " + "; ".join(wrong_policies)


def policies_of(subject: Subject) -> Sequence[Any]:
    """The declared policy; all possible ones if none is declared."""
    if not isinstance(subject.op, Op):
        return POLICIES
    return (subject.op._families.default.forward.autocast.get(subject.device, "keep"),)


def compared(
    subject: Subject, values: Sequence[Any], policy: Any, region: torch.dtype, gradients: bool
) -> list[Comparison]:
    """The call in the region beside the reference outside of it. RuntimeError where that does not take such dtypes."""
    target = {"keep": None, "lower": region, "float32": torch.float32}.get(policy, policy)
    # Numbers that the target holds, so that the cast rounds nothing and the truth is not in doubt.
    exact = _cast(subject.arguments, values, target, subject.device, back=True)
    lowered = _cast(subject.arguments, exact, target, subject.device)
    truth = Truth(subject.arguments, subject.inline, lowered, gradients, rounding_of(subject.op, lowered, gradients))

    def called(given: Sequence[Any]) -> Any:
        with torch.autocast(subject.device, dtype=region):
            return subject.raw(given)

    given = evaluate(subject.arguments, called, exact, gradients=gradients)
    results = [tensor for what, tensor in given if not what.startswith("gradient")]
    wrong = [*_of_other_dtype(subject.reference(lowered), results), *_of_inputs_dtype(subject, exact, given)]
    return wrong or truth.beside(_as_computed(subject, lowered, given))


def _cast(
    arguments: Sequence[Argument], values: Sequence[Any], target: torch.dtype | None, device: str, back: bool = False
) -> list[Any]:
    """Floating tensors of the region's device in the target's dtype, but for float64, and what is changed in place:
    that is the tensor itself and no copy. `back`: rounded to that dtype, and in their own again."""
    changed = []
    for argument, value in zip(arguments, values, strict=True):
        tensors = []
        for tensor in flatten([argument], [value]):
            if tensor is None or target is None or argument.mutated or not _is_eligible(tensor, device):
                tensors.append(tensor)
            else:
                cast = tensor.detach().to(target)
                tensors.append(cast.to(tensor.dtype) if back else cast)
        changed += unflatten([argument], [value], tensors)
    return changed


def _is_eligible(tensor: torch.Tensor, device: str) -> bool:
    return tensor.is_floating_point() and tensor.dtype != torch.float64 and tensor.device.type == device


def _of_other_dtype(expected: Sequence[torch.Tensor], results: Sequence[torch.Tensor | None]) -> list[Comparison]:
    return [
        Comparison("result", False, float("inf"), 0.0, f"{mine.dtype} where the reference gives {theirs.dtype}")
        for mine, theirs in zip(results, expected, strict=True)
        if mine is not None and mine.dtype != theirs.dtype and not theirs.is_complex()
    ]


def _of_inputs_dtype(subject: Subject, values: Sequence[Any], given: Sequence[Named]) -> list[Comparison]:
    """What is wrong with the dtypes of gradients."""
    leaves = [t for t in flatten(subject.arguments, values) if t is not None and t.is_floating_point()]
    gradients = [(what, tensor) for what, tensor in given if what.startswith("gradient")]
    return [
        Comparison(what, False, float("inf"), 0.0, f"{gradient.dtype} for an input of {leaf.dtype}")
        for (what, gradient), leaf in zip(gradients, leaves, strict=False)
        if gradient is not None and gradient.dtype != leaf.dtype
    ]


def _as_computed(subject: Subject, lowered: Sequence[Any], given: Sequence[Named]) -> list[Named]:
    """Gradients in the dtype that they were computed in, before the cast to that of the inputs."""
    leaves = iter([t for t in flatten(subject.arguments, lowered) if t is not None and t.is_floating_point()])
    found: list[Named] = []
    for what, tensor in given:
        if what.startswith("gradient"):
            dtype = next(leaves).dtype
            tensor = None if tensor is None else tensor.to(dtype)
        found.append((what, tensor))
    return found
