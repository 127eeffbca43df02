"""A call inside an autocast region, compared with the reference on inputs cast as the op declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...operator.adopted import Adopted
from ...operator.op import Op
from .. import values as call_values
from ..accuracy.evaluate import Named, evaluate
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Comparison, Truth, mismatch
from ..subject import Subject

if TYPE_CHECKING:
    from ...reference.signature import Argument

POLICIES = ("keep", "lower", "float32")


def assert_autocast_matches(op: Op | Adopted, *args: Any, device: str, dtype: torch.dtype, **kwargs: Any) -> None:
    """Raises AssertionError unless the op inside torch.autocast(device, dtype) gives what its reference gives outside,
    on inputs cast according to the op's policy; an operator without a policy may follow any of 'keep', 'lower' and
    'float32'. Gradients have the dtypes of the inputs."""
    subject = Subject(op, device)
    values = op.signature.bind_call(args, kwargs)
    gradients = any(tensor.requires_grad for tensor in call_values.present(subject.arguments, values))
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
    """The call in the region, compared with the reference outside. RuntimeError if that does not take the dtypes."""
    target = {"keep": None, "lower": region, "float32": torch.float32}.get(policy, policy)
    # Inputs that the target dtype represents, so that the cast rounds nothing.
    exact = _cast(subject.arguments, values, target, subject.device, back=True)
    lowered = _cast(subject.arguments, exact, target, subject.device)
    truth = Truth(subject.arguments, subject.inline, lowered, gradients, rounding_of(subject.op, lowered, gradients))

    def called(given: Sequence[Any]) -> Any:
        with torch.autocast(subject.device, dtype=region):
            return subject.raw(given)

    given = evaluate(subject.arguments, called, exact, gradients=gradients)
    own_gradients = [(what, tensor) for what, tensor in given if what.startswith("gradient")]
    results = given[: len(given) - len(own_gradients)]
    wrong = [
        mismatch("result", f"{mine.dtype} where the reference gives {theirs.dtype}")
        for (_, mine), theirs in zip(results, subject.reference(lowered), strict=True)
        if mine is not None and mine.dtype != theirs.dtype and not theirs.is_complex()
    ]
    wrong += [
        mismatch(what, f"{gradient.dtype} for an input of {leaf.dtype}")
        for (what, gradient), leaf in zip(own_gradients, call_values.floating(subject.arguments, exact), strict=False)
        if gradient is not None and gradient.dtype != leaf.dtype
    ]
    return wrong or truth.beside(_as_computed(subject, lowered, given))


def _cast(
    arguments: Sequence[Argument], values: Sequence[Any], target: torch.dtype | None, device: str, back: bool = False
) -> list[Any]:
    """Floating tensors of the region's device in the target dtype, except float64 and tensors changed in place. `back`:
    rounded to that dtype, in their own dtype."""

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        eligible = tensor.is_floating_point() and tensor.dtype != torch.float64 and tensor.device.type == device
        if target is None or not eligible:
            return tensor
        rounded = tensor.detach().to(target)
        return rounded.to(tensor.dtype) if back else rounded

    pairs = zip(arguments, values, strict=True)
    return [v if a.mutated else call_values.mapped([a], [v], cast)[0] for a, v in pairs]


def _as_computed(subject: Subject, lowered: Sequence[Any], given: Sequence[Named]) -> list[Named]:
    """Gradients in the dtype in which they were computed, before the cast to that of the inputs."""
    leaves = iter(call_values.floating(subject.arguments, lowered))
    found: list[Named] = []
    for what, tensor in given:
        if what.startswith("gradient"):
            dtype = next(leaves).dtype
            tensor = None if tensor is None else tensor.to(dtype)
        found.append((what, tensor))
    return found
