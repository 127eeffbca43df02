"""An operator of torch.ops that opsmith did not declare, with a reference: so it can be checked too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..errors import NotAnOperatorError, SeveralOverloadsError
from ..reference.signature import KINDS, Argument, Kind, Signature, schema_type
from .samples import Cost, Sample, samples_of

SHAPES = ((7, 33), (5, 5), (4, 3, 8), (257,), (1,), ())
"""Shapes to try if no samples are given: each for all tensors of a call."""
_VALUES: dict[str, Any] = {"SymInt": 1, "int": 1, "float": 1.5, "Scalar": 1.5, "bool": True, "str": ""}


def adopt(
    operator: Any, reference: Callable[..., Any], samples: Callable[..., Iterator[Sample]] | None = None
) -> Adopted:
    """An operator that was registered elsewhere, with the plain PyTorch function that specifies it.

    >>> opsmith.check(opsmith.checks.adopt(torch.ops.mylib.mish, mish_reference))

    `samples(device, dtype)` yields opsmith.Sample; without, tensors of a few shapes are made from the schema."""
    return Adopted(operator, reference, samples)


class Adopted:
    """What `adopt` returns; called like the operator."""

    def __init__(
        self, operator: Any, reference: Callable[..., Any], samples: Callable[..., Iterator[Sample]] | None
    ) -> None:
        overload = _overload(operator)
        self.overload: torch._ops.OpOverload = overload
        self.name = overload._schema.name
        self.signature = signature_of(overload._schema)
        self.reference = reference
        self.inline = reference
        self.reference_home = reference.__module__, reference.__qualname__
        self.samples_home = (samples.__module__, samples.__qualname__) if samples is not None else None
        self.libraries: list[str] = []
        """More modules to import: they register the operator."""
        self.cost: Callable[..., Cost] | None = None
        self.kernels: dict[str, dict[str, Any]] = {}
        self._samples = samples

    @property
    def qualified_name(self) -> str:
        """'mylib.mish', or 'mylib.mish.out' for an overload of another name than the default's."""
        overload = self.overload._overloadname
        return self.name.replace("::", ".") + ("" if overload == "default" else f".{overload}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        returned = self.overload(*args, **kwargs)
        return self.signature.changed(self.signature.bind(args, kwargs)) if self.signature.mutated else returned

    def _inline_call(self, args: Sequence[Any]) -> Any:
        """The reference on all arguments in schema order; an in-place one returns what it changed."""
        positional, keyword = self.signature.arranged(args)
        returned = self.reference(*positional, **keyword)
        return self.signature.changed(args) if self.signature.mutated else returned

    def samples_for(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> list[Sample]:
        if self._samples is not None:
            return samples_of(self._samples, self.name, device, dtype)
        generated = [self._sample(shape, device, dtype) for shape in SHAPES]
        accepted = [sample for sample in generated if self._accepts(self.reference, sample)]
        # The operator may accept less than its reference. If it accepts none of these, the check must report that.
        return [sample for sample in accepted if self._accepts(self.overload, sample)] or accepted

    def _sample(self, shape: tuple[int, ...], device: str | torch.device, dtype: torch.dtype) -> Sample:
        values = [
            torch.randn(shape, device=device, dtype=dtype)
            if argument.kind in (Kind.TENSOR, Kind.OPTIONAL_TENSOR)
            else [torch.randn(shape, device=device, dtype=dtype) for _ in range(2)]
            if argument.is_tensor
            else argument.default
            if argument.has_default
            else _VALUES.get(argument.type)
            for argument in self.signature.arguments
        ]
        positional, keyword = self.signature.arranged(values)
        return Sample(tuple(positional), keyword, f"shape {shape}")

    def _accepts(self, function: Callable[..., Any], sample: Sample) -> bool:
        values = self.signature.bind(sample.args, dict(sample.kwargs))
        copies = [v.clone() if a.mutated else v for a, v in zip(self.signature.arguments, values, strict=True)]
        positional, keyword = self.signature.arranged(copies)
        try:
            function(*positional, **keyword)
        except Exception:
            return False
        return True


def _overload(operator: Any) -> torch._ops.OpOverload:
    if isinstance(operator, torch._ops.OpOverload):
        return operator
    if not isinstance(operator, torch._ops.OpOverloadPacket):
        raise NotAnOperatorError(operator)
    names = operator.overloads()
    if "default" in names or len(names) == 1:
        return getattr(operator, "default" if "default" in names else names[0])  # type: ignore[no-any-return]
    raise SeveralOverloadsError(str(operator), names)


def signature_of(schema: Any) -> Signature:
    """The signature of a torch.FunctionSchema."""
    arguments = []
    for each in schema.arguments:
        text = schema_type(each.type)
        default = each.default_value if each.has_default_value() else inspect.Parameter.empty
        mutated = each.alias_info is not None and each.alias_info.is_write
        kind = KINDS.get(text, Kind.VALUE)
        arguments.append(Argument(each.name, text, kind, default, each.kwarg_only, mutated))
    results = tuple(
        Kind.TENSOR_LIST if "List[" in str(each.type) else Kind.TENSOR
        for each in schema.returns
        if each.alias_info is None or not each.alias_info.is_write
    )
    return Signature(tuple(arguments), results)
